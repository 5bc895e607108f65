/**
 * Flow transformers that another program exported, as `scripts/export_edit_transformer` writes them: a folder with config.json, which is that of
 * diffusers with the `model_type` flow_transformer, model.onnx and its weights in model.onnx.data. The graph gives `velocity` [B, N, width] of
 *
 *   hidden [B, N, in_channels], second [B, M, in_channels] (M may be 0), text [B, T, joint_attention_dim], text_padding [B, T], sigma [B]
 *   cos, sin [T + N + M, attention_head_dim / 2]: rotary positions of text, picture and the pictures before the edit
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError, must } from '../../core/errors.js';
import { LazyModelFile } from '../../engines/onnx/lazy_model_file.js';
import type { ModelFile, ModelTensor } from '../../engines/onnx/model_file.js';
import type { SessionOptions } from '../../engines/onnx/session.js';
import type { TensorData } from '../../engines/onnx/tensor_cell.js';
import { EXPORTED_FLOW, EXPORTED_FLOW_FILES } from '../../models/exported.js';
import { CONFIG_FILE, readConfig, type Weights } from '../../models/files.js';
import { velocityWidth, type FlowTransformerConfig, type QwenImageConfig } from '../../nets/flow/config.js';
import { describeFlowTransformer, type LoadedFlowTransformer } from '../../nets/flow/files.js';
import { rotaryAngles, shownTokens } from '../../nets/flow/positions.js';
import type { FlowShape } from '../../nets/flow/transformer.js';

const NEXT = 'Export it again with scripts/export_edit_transformer.';

/** Computes a frozen model's velocities in place of one of this program's graphs. */
export interface VelocityFile {
  /** [B, N, velocityWidth] for the feeds that `modelFeeds` makes of a micro-batch of this shape. */
  velocity(feeds: Readonly<Record<string, TensorData>>, shape: FlowShape): Promise<Float32Array>;
  dispose(): Promise<void>;
}

/** A flow transformer that is not trained. */
export interface FrozenFlow extends LoadedFlowTransformer {
  /** Absent if this program computes it from its weights. */
  readonly file?: VelocityFile;
}

/** Whether a folder holds an export, which has no weights to train. Raises CheckpointError for a folder without a config.json. */
export function isExportedFlow(folder: string): boolean {
  return readConfig<{ readonly model_type?: unknown }>(folder).model_type === EXPORTED_FLOW;
}

/** Reads its config.json. Raises CheckpointError for a missing file and for a class that is not exported. */
export function checkExportedFlow(folder: string): QwenImageConfig {
  const config = describeFlowTransformer(folder);
  if (config.architecture !== 'qwen_image' || config.prediction !== 'velocity' || config.ip_adapter !== null) {
    throw new CheckpointError('only plain transformers of the class QwenImageTransformer2DModel are exported', {
      where: join(folder, CONFIG_FILE),
      next: NEXT,
    });
  }
  const missing = EXPORTED_FLOW_FILES.filter((file) => !existsSync(join(folder, file)));
  if (missing.length === 0) return config;
  throw new CheckpointError(`the exported transformer lacks ${missing.join(' and ')}`, { where: folder, next: NEXT });
}

/** Opens an export; its graph is opened at the first call. Raises CheckpointError as `checkExportedFlow` does. */
export function openExportedFlow(folder: string, session: SessionOptions): FrozenFlow {
  const config = checkExportedFlow(folder);
  const weights: Weights = new Map();
  return { config, weights, file: new ExportedVelocity(folder, config, session) };
}

class ExportedVelocity implements VelocityFile {
  readonly #model: LazyModelFile;
  readonly #graph: string;
  /** Positions of the last shape: all steps of a picture share one. */
  #positions: { readonly key: string; readonly cos: ModelTensor; readonly sin: ModelTensor } | null = null;

  constructor(
    folder: string,
    private readonly config: QwenImageConfig,
    session: SessionOptions,
  ) {
    this.#graph = join(folder, EXPORTED_FLOW_FILES[0]);
    this.#model = new LazyModelFile(this.#graph, session, (model) => requireInputs(model, config));
  }

  async velocity(feeds: Readonly<Record<string, TensorData>>, shape: FlowShape): Promise<Float32Array> {
    const { batch, rows, columns, textTokens: said, hasPadding = false } = shape;
    const { in_channels: channels, joint_attention_dim: width } = this.config;
    const tokens = rows * columns;
    const seen = shownTokens(shape);
    const fed = (name: string): Float32Array => must(feeds[name], name) as Float32Array;
    const second = seen > 0 ? fed('second') : new Float32Array(0);
    const padding = hasPadding ? fed('text_padding') : new Float32Array(batch * said);
    const { cos, sin } = this.#places(shape);
    const [{ data, shape: found }] = await this.#model.run(
      {
        hidden: { data: fed('hidden'), shape: [batch, tokens, channels] },
        second: { data: second, shape: [batch, seen, channels] },
        text: { data: fed('text'), shape: [batch, said, width] },
        text_padding: { data: padding, shape: [batch, said] },
        sigma: { data: fed('sigma'), shape: [batch] },
        cos,
        sin,
      },
      'velocity',
    );
    const wanted = [batch, tokens, velocityWidth(this.config)];
    if (found.join() === wanted.join()) return data as Float32Array;
    throw new CheckpointError(
      `velocity has the shape [${found.join(', ')}], and by ${CONFIG_FILE} [${wanted.join(', ')}]`,
      {
        where: this.#graph,
        next: NEXT,
      },
    );
  }

  dispose(): Promise<void> {
    return this.#model.dispose();
  }

  #places({ rows, columns, textTokens, hasSecond = false, further = [] }: FlowShape) {
    const grid = { rows, columns, textTokens, hasSecond, further };
    const key = JSON.stringify(grid);
    if (this.#positions?.key === key) return this.#positions;
    const angles = rotaryAngles(this.config, grid);
    const table = (of: (angle: number) => number): ModelTensor => ({
      data: Float32Array.from(angles.flat(), of),
      shape: [angles.length, this.config.attention_head_dim / 2],
    });
    this.#positions = { key, cos: table(Math.cos), sin: table(Math.sin) };
    return this.#positions;
  }
}

/** Raises CheckpointError when a graph's inputs differ from those it is fed, or their widths from its config. */
function requireInputs(model: ModelFile, config: FlowTransformerConfig): void {
  const { in_channels, joint_attention_dim, attention_head_dim } = config;
  const widths: Readonly<Record<string, number | null>> = {
    hidden: in_channels,
    second: in_channels,
    text: joint_attention_dim,
    text_padding: null,
    sigma: null,
    cos: attention_head_dim / 2,
    sin: attention_head_dim / 2,
  };
  const names = Object.keys(widths);
  const problem = [
    ...(model.inputs.length === names.length && names.every((name) => model.inputs.includes(name))
      ? []
      : [`it takes ${model.inputs.join(', ')}; expected: ${names.join(', ')}`]),
    ...names.flatMap((name) => {
      const found = model.shapeOf(name).at(-1);
      const wanted = widths[name];
      return wanted === null || found === wanted || found === undefined
        ? []
        : [`${name} is ${found} wide, and by ${CONFIG_FILE} ${wanted}`];
    }),
  ];
  if (problem.length > 0) throw new CheckpointError(problem.join('; '), { where: model.file, next: NEXT });
}
