"""Seeded histories of many processes over one store, with crashes between any two statements.

The flow is the real one and so is the SQLite storage; only time, chance and misfortune are not.

scenario   one seed from beginning to end: what is drawn, and in which order
world      who goes on next, how time passes, what goes wrong      clock, baton, chance, history
store      the storage, cut at every call and every statement
actors     processes with their loops and handlers; `people`: producers and an operator
recorder   what was committed, as seen from outside; checked by `invariants` and `timetable`
drain      after healing everything must come to its end
planted    bugs put in on purpose, to see that they are found

python -m tests.simulation 42                           replay a seed and print its history
python -m tests.simulation --seeds 20000 --from 0       try many
python -m tests.simulation 3 --planted "settle without fence"
"""
