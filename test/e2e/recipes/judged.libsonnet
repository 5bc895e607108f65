// The stub judge at the address that the environment names, in place of the embedded one; the runs that a run starts from keep theirs.
{ reward+: { endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE'), [if $.kind == 'rl' then 'model' else null]: 'stub-judge' } }
