// Evaluates a run on simple and on complex edits, whatever it is trained on.
{ validation_sets:: ['s', 'c'] }
