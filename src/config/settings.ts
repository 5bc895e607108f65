/** One run's settings: the output type of the schema, fully defaulted. Narrow by `task`, then by `algorithm.type`. */
import type { ExternalSettings, ImageEditSettings, ImageTokenizerSettings } from './schema/tasks.js';

export type Settings = ImageEditSettings | ImageTokenizerSettings | ExternalSettings;
/** Settings of a run that this program's own workers can train. */
export type TrainedSettings = Exclude<Settings, ExternalSettings>;

export type {
  EnvironmentSettings,
  ExternalSettings,
  ImageEditSettings,
  ImageTokenizerSettings,
  PolicySettings,
  TaskName,
} from './schema/tasks.js';
export type {
  AdvantageSettings,
  AlgorithmSettings,
  GrpoSettings,
  SftSettings,
  TrainTokens,
} from '../schema/algorithm.js';
export type { DataSettings, DataSource, ImageDataSettings, TinyWorldSettings } from '../schema/data.js';
export type {
  DecoderInit,
  EngineSettings,
  HubReference,
  ImageTokenizerInit,
  ModelReference,
  RunReference,
} from '../schema/model.js';
export type { LaunchSettings, SlurmSettings } from '../schema/launch.js';
export type { TrackSettings } from '../schema/track.js';
export type { RewardSettings } from '../rewards/schema/reward.js';
export type { CheckpointSettings, OptimizerSettings, RolloutSettings, ValidationSettings } from '../schema/training.js';
