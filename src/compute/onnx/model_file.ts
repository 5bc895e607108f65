/** Models that another program exported. They run unchanged, with the shapes that they allow. */
import type * as Ort from 'onnxruntime-node';
import { EngineError } from '../../core/errors.js';
import { allCores, loadRuntime, onDevice, type Provider } from './session.js';

/** The elements of an input or output tensor of a model file. */
export type ModelData = Float32Array | BigInt64Array | Int32Array | Uint8Array;

export interface ModelTensor {
  readonly data: ModelData;
  readonly shape: readonly number[];
}

export interface ModelFileOptions {
  readonly provider?: Provider;
  /** Index among the GPUs of this process. Default: the first. Only for `cuda`. */
  readonly device?: number;
  /** Threads within an operator. Default: one for each core of this process. */
  readonly threads?: number;
}

function dtypeOf(data: ModelData): 'float32' | 'int64' | 'int32' | 'uint8' {
  if (data instanceof Float32Array) return 'float32';
  if (data instanceof BigInt64Array) return 'int64';
  return data instanceof Int32Array ? 'int32' : 'uint8';
}

/** A session of an ONNX file. Runs may overlap. */
export class ModelFile {
  readonly #ort: typeof Ort;
  readonly #session: Ort.InferenceSession;

  private constructor(
    readonly file: string,
    ort: typeof Ort,
    session: Ort.InferenceSession,
  ) {
    this.#ort = ort;
    this.#session = session;
  }

  /** Raises EngineError if the file is missing or no ONNX model, or if the provider cannot run it. */
  static async open(file: string, options: ModelFileOptions = {}): Promise<ModelFile> {
    const ort = await loadRuntime();
    const provider = options.provider ?? 'cpu';
    try {
      const session = await ort.InferenceSession.create(file, {
        executionProviders: [onDevice(provider, options.device)],
        graphOptimizationLevel: 'all',
        executionMode: 'sequential',
        logSeverityLevel: 3,
        intraOpNumThreads: options.threads ?? allCores(),
      });
      return new ModelFile(file, ort, session);
    } catch (cause) {
      throw new EngineError(
        `provider ${provider} cannot open this model: ${cause instanceof Error ? cause.message : String(cause)}`,
        { where: file, next: 'Check that the file is a whole ONNX model, or export it again.', cause },
      );
    }
  }

  get inputs(): readonly string[] {
    return this.#session.inputNames;
  }

  get outputs(): readonly string[] {
    return this.#session.outputNames;
  }

  /** An input's dimensions: a number if the file fixes it, a name if it is free. Empty if unknown. */
  shapeOf(input: string): readonly (number | string)[] {
    const found = this.#session.inputMetadata.find(({ name }) => name === input);
    return found?.isTensor === true ? found.shape : [];
  }

  /** Runs once and returns every output by name. Raises EngineError if the model refuses its inputs. */
  async run(feeds: Readonly<Record<string, ModelTensor>>): Promise<Record<string, ModelTensor>> {
    const tensors: Record<string, Ort.Tensor> = {};
    for (const [name, { data, shape }] of Object.entries(feeds)) {
      tensors[name] = new this.#ort.Tensor(dtypeOf(data), data as Float32Array, [...shape]);
    }
    try {
      const results = await this.#session.run(tensors);
      return Object.fromEntries(
        Object.entries(results).map(([name, { data, dims }]) => [name, { data: data as ModelData, shape: dims }]),
      );
    } catch (cause) {
      throw new EngineError(`the model cannot run: ${cause instanceof Error ? cause.message : String(cause)}`, {
        where: this.file,
        cause,
      });
    }
  }

  /** Frees the native session. No run may be in progress. */
  async dispose(): Promise<void> {
    await this.#session.release();
  }
}
