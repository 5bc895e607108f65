// tiny_editor.jsonnet without responses: it gets only image and instruction, of the same edits and of the few labeled ones with odd names.
local labels = [{ path: std.extVar('APP__DATA_DIR') + '/tiny/pictured/train.jsonl' }];

(import 'tiny_editor.jsonnet') + { reader+: { told: 'instruction' }, data+: { train+: labels } }
