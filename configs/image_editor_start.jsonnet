// The supervised start of image_editor: flow matching on few labeled edits.
(import 'image_editor.jsonnet') + {
  num_iterations: 1000,
  algorithm: { type: 'sft', sft: { batch_size: 64 } },
}
