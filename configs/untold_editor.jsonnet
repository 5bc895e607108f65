// tiny_editor.jsonnet without responses: its condition is image and instruction, for the same edits and for a few labeled ones with odd names.
local labels = [{ path: std.extVar('APP__DATA_DIR') + '/tiny/pictured/train.jsonl' }];

(import 'tiny_editor.jsonnet') + { reader+: { told: 'instruction' }, data+: { train+: labels } }
