// Every screen, and where it lives. A screen is one file: it is fetched when it is first shown.
// `key`: with g before it, a way there. `count`: what its number in the navigation counts.

export const SCREENS = [
  { name: "overview", path: "/", title: "Overview", key: "o", load: () => import("./screens/overview.js") },
  { name: "timeline", path: "/timeline", title: "Timeline", key: "t", load: () => import("./screens/timeline.js") },
  { name: "schedules", path: "/schedules", title: "Schedules", key: "s", load: () => import("./screens/schedules.js") },
  { name: "runs", path: "/runs", title: "Runs", key: "r", load: () => import("./screens/runs.js") },
  { name: "jobs", path: "/jobs", title: "Jobs", key: "j", load: () => import("./screens/jobs.js") },
  { name: "queues", path: "/queues", title: "Queues", key: "q", load: () => import("./screens/queues.js") },
  { name: "workers", path: "/workers", title: "Workers", key: "w", load: () => import("./screens/workers.js") },
  { name: "dead", path: "/dead", title: "Dead letters", key: "d", load: () => import("./screens/dead.js") },
  { name: "sql", path: "/sql", title: "SQL console", key: "c", load: () => import("./screens/sql.js") },
  { name: "audit", path: "/audit", title: "Audit", key: "a", load: () => import("./screens/audit.js") },
];

// Screens of one thing. `of`: the list it belongs to.
export const DETAILS = [
  { name: "schedule", path: "/schedules/:name", of: "schedules", load: () => import("./screens/schedule.js") },
  { name: "run", path: "/runs/:id", of: "runs", load: () => import("./screens/run.js") },
  { name: "job", path: "/jobs/:name", of: "jobs", load: () => import("./screens/job.js") },
];
