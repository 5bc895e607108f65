/** Models that another program exported to ONNX: how such folders are recognised, and which files hold the network. */

/** The `model_type` in an image tokenizer's config.json. */
export const EXPORTED = 'exported_image_tokenizer';

export const EXPORTED_FILES = { encoder: 'encoder.onnx', decoder: 'decoder.onnx' } as const;

/** The same of a flow transformer. */
export const EXPORTED_FLOW = 'flow_transformer';
/** The graph, and the file beside it that holds its weights. */
export const EXPORTED_FLOW_FILES = ['model.onnx', 'model.onnx.data'] as const;
