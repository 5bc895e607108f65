// tiny_editor.jsonnet without responses: told picture and instruction alone, of the same edits and of the few labelled ones with odd names.
local labels = [{ path: std.extVar('APP__DATA_DIR') + '/tiny/pictured/train.jsonl' }];

(import 'tiny_editor.jsonnet') + { reader+: { told: 'instruction' }, data+: { train+: labels } }
