// What every module needs of the libraries, from one place.
import { h, render, Component, Fragment } from "preact";
import htm from "htm";

// Text and attributes are escaped by construction. Nothing here sets innerHTML, and a test looks.
export const html = htm.bind(h);
export { render, Component, Fragment };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useId } from "preact/hooks";
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
