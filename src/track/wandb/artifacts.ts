/**
 * Tables as artifacts of the type `run_table`, the form in which W&B's own SDK keeps a table whose cells are pictures: a file of the table beside
 * those of its pictures, listed in a manifest. A row of history refers to the artifact by an id that the client makes up.
 */
import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { WandbRefusedError, headersOf, type WandbClient } from './client.js';
import type { MediaFile, UploadTarget } from './upload_types.js';

/** A table of one iteration. */
export interface TableArtifact {
  /** The metric that shows it, such as `episodes/table`. */
  readonly key: string;
  readonly clientId: string;
  /** The table's file and those of its pictures, by their names in the artifact. */
  readonly files: readonly MediaFile[];
}

/** The file of a table in its artifact. */
export function tableFile(key: string): string {
  return `${key}.table.json`;
}

/** What a value in history says of its artifact. */
export function artifactPaths({ key, clientId }: Pick<TableArtifact, 'key' | 'clientId'>): Record<string, string> {
  const address = (id: string): string => `wandb-client-artifact://${id}/${tableFile(key)}`;
  return { artifact_path: address(clientId), _latest_artifact_path: address(`${sequenceOf(clientId)}:latest`) };
}

/** An id that is the same wherever the same words are given: a row that is sent again has to be the same row. */
export function clientIdOf(words: readonly string[]): string {
  const part = (number: number): string =>
    createHash('sha512')
      .update(JSON.stringify([number, ...words]))
      .digest('hex');
  return BigInt(`0x${part(0)}${part(1)}`)
    .toString(36)
    .padStart(ID_LETTERS, '0')
    .slice(-ID_LETTERS);
}

const ID_LETTERS = 128;

function sequenceOf(clientId: string): string {
  return clientIdOf(['sequence', clientId]);
}

/** As the SDK names what it makes of a metric: letters that no artifact may have are left out, and a checksum keeps such names apart. */
export function collectionOf(run: string, key: string): string {
  const name = `run-${run}-${key}`;
  const plain = name.replaceAll(/[^\w.-]+/g, '');
  if (plain === name) return name;
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(name));
  return `${plain}-${sum.toString('base64url')}`;
}

const CREATE = `mutation CreateArtifact($input: CreateArtifactInput!) {
  createArtifact(input: $input) { artifact { id state artifactSequence { latestArtifact { id } } } }
}`;
const MANIFEST = `mutation CreateArtifactManifest($artifactID: ID!, $baseArtifactID: ID, $name: String!, $digest: String!,
  $entityName: String!, $projectName: String!, $runName: String!, $manifestType: ArtifactManifestType!,
  $includeUpload: Boolean!) {
  createArtifactManifest(input: {artifactID: $artifactID, baseArtifactID: $baseArtifactID, name: $name, digest: $digest,
    entityName: $entityName, projectName: $projectName, runName: $runName, type: $manifestType}) {
    artifactManifest { id file { id uploadUrl @include(if: $includeUpload) uploadHeaders @include(if: $includeUpload) } }
  }
}`;
const FILES = `mutation CreateArtifactFiles($input: CreateArtifactFilesInput!) {
  createArtifactFiles(input: $input) { files { edges { node { uploadUrl uploadHeaders artifact { id } } } } }
}`;
const COMMIT = `mutation CommitArtifact($artifactID: ID!) {
  commitArtifact(input: {artifactID: $artifactID}) { artifact { id digest } }
}`;
const DIGEST_HEADER = 'wandb-artifact-manifest-v1\n';
const STORAGE_LAYOUT = 'V2';

interface UploadAddress {
  readonly uploadUrl?: string | null;
  readonly uploadHeaders?: readonly string[] | null;
}

interface Entry extends MediaFile {
  /** MD5 in base64. */
  readonly digest: string;
  readonly size: number;
}

/**
 * Saves an artifact; nothing happens where the server has one with the same content. Pictures that are gone are left out. Raises as the client does,
 * and WandbRefusedError for an answer that is none.
 */
export async function saveArtifact(
  client: WandbClient,
  { entity, project, run }: UploadTarget,
  { key, clientId, files }: TableArtifact,
): Promise<void> {
  const entries = files.flatMap(({ name, read }): Entry[] => {
    const bytes = read();
    return bytes === null ? [] : [{ name, read, digest: md5(bytes, 'base64'), size: bytes.length }];
  });
  const place = { entityName: entity, projectName: project, runName: run };
  const collection = collectionOf(run, key);
  const { artifact } = await queryField<{ artifact: Artifact }>(client, 'CreateArtifact', CREATE, {
    input: {
      ...place,
      artifactTypeName: 'run_table',
      artifactCollectionName: collection,
      aliases: [{ artifactCollectionName: collection, alias: 'latest' }],
      digest: md5(
        DIGEST_HEADER +
          byName(entries)
            .map(({ name, digest }) => `${name}:${digest}\n`)
            .join(''),
        'hex',
      ),
      digestAlgorithm: 'MANIFEST_MD5',
      clientID: clientId,
      sequenceClientID: sequenceOf(clientId),
      enableDigestDeduplication: true,
    },
  });
  if (artifact.state === 'COMMITTED') return;
  const manifest = (digest: string, includeUpload: boolean): Promise<{ artifactManifest: Manifest }> =>
    queryField(client, 'CreateArtifactManifest', MANIFEST, {
      ...{ ...place, artifactID: artifact.id, baseArtifactID: artifact.artifactSequence?.latestArtifact?.id ?? null },
      ...{ name: 'wandb_manifest.json', manifestType: 'FULL', digest, includeUpload },
    });
  const { artifactManifest } = await manifest('', false);
  const births = await upload(client, artifact.id, artifactManifest.id, entries);
  const listed = Buffer.from(
    JSON.stringify({
      version: 1,
      storagePolicy: 'wandb-storage-policy-v1',
      storagePolicyConfig: { storageLayout: STORAGE_LAYOUT },
      contents: Object.fromEntries(
        entries.map(({ name, digest, size }, i) => [name, { digest, size, birthArtifactID: births[i] }]),
      ),
    }),
  );
  const { artifactManifest: last } = await manifest(md5(listed, 'base64'), true);
  await put(client, last.file ?? {}, listed);
  await queryField(client, 'CommitArtifact', COMMIT, { artifactID: artifact.id });
}

interface Artifact {
  readonly id: string;
  readonly state: string;
  readonly artifactSequence?: { readonly latestArtifact?: { readonly id: string } | null };
}

interface Manifest {
  readonly id: string;
  readonly file?: UploadAddress | null;
}

/** Uploads the files that the server has not; returns for each the artifact that it came with. */
async function upload(
  client: WandbClient,
  artifactID: string,
  artifactManifestID: string,
  entries: readonly Entry[],
): Promise<string[]> {
  const wanted = entries.map(({ name, digest: md5 }) => ({ artifactID, artifactManifestID, name, md5 }));
  const { files } = await queryField<{ files: { edges: readonly { node: FileNode }[] } }>(
    client,
    'CreateArtifactFiles',
    FILES,
    { input: { artifactFiles: wanted, storageLayout: STORAGE_LAYOUT } },
  );
  const births: string[] = [];
  // Addresses come in the order of the files.
  for (const [i, { read }] of entries.entries()) {
    const node: FileNode | undefined = files.edges.at(i)?.node;
    const bytes = read();
    if (node !== undefined && bytes !== null) await put(client, node, bytes);
    births.push(node?.artifact?.id ?? artifactID);
  }
  return births;
}

interface FileNode extends UploadAddress {
  readonly artifact?: { readonly id: string } | null;
}

async function put(client: WandbClient, { uploadUrl, uploadHeaders }: UploadAddress, bytes: Uint8Array): Promise<void> {
  if (uploadUrl) await client.put(uploadUrl, headersOf(uploadHeaders ?? []), bytes);
}

/** What an operation answers: the single field of its data. */
async function queryField<T>(client: WandbClient, operation: string, query: string, variables: object): Promise<T> {
  const [answer] = Object.values(await client.graphql(operation, query, { ...variables }));
  if (typeof answer === 'object' && answer !== null) return answer as T;
  throw new WandbRefusedError(200, `W&B answers ${operation} with nothing`, { where: client.baseUrl });
}

/** By code points, as the digest of a manifest wants it. */
function byName(entries: readonly Entry[]): Entry[] {
  return [...entries].sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
}

function md5(content: string | Uint8Array, form: 'hex' | 'base64'): string {
  return createHash('md5').update(content).digest(form);
}
