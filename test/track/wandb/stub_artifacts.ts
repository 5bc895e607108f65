/** The artifacts of a stand-in of W&B, which checks each against its manifest when it is committed. */
import { createHash } from 'node:crypto';

/** How the places of their files begin, in the storage. */
export const ARTIFACTS = 'artifact/';

export interface StubArtifact {
  readonly id: string;
  readonly type: string;
  readonly collection: string;
  readonly clientId: string;
  readonly digest: string;
  readonly files: Map<string, Buffer>;
  /** Digests that were announced, by name. */
  readonly announced: Map<string, string>;
  manifestDigest: string;
  manifest: Buffer | null;
  committed: boolean;
}

type Variables = Readonly<Record<string, unknown>>;

export class StubArtifacts {
  readonly all: StubArtifact[] = [];

  /** @param wrong gets what a client did wrong. */
  constructor(private readonly wrong: string[]) {}

  /** The committed artifact that a row refers to, by the path that it has. */
  at(path: string): { readonly artifact: StubArtifact; readonly file: Buffer } {
    const [, clientId, name] = /^wandb-client-artifact:\/\/(\w{128})\/(.+)$/.exec(path) ?? [];
    const artifact = this.all.find((one) => one.committed && one.clientId === clientId);
    const file = artifact?.files.get(name ?? '');
    if (artifact === undefined || file === undefined) throw new Error(`no artifact at ${path}`);
    return { artifact, file };
  }

  answer(operation: string, variables: Variables, storage: string): object {
    const input = (variables['input'] ?? variables) as Variables;
    const address = (place: string): object => ({
      uploadUrl: `${storage}${ARTIFACTS}${place}`,
      uploadHeaders: ['X-Signed: yes'],
    });
    switch (operation) {
      case 'CreateArtifact': {
        const same = this.all.find(
          ({ collection, digest }) => collection === input['artifactCollectionName'] && digest === input['digest'],
        );
        const artifact = same ?? this.#made(input);
        const state = artifact.committed ? 'COMMITTED' : 'PENDING';
        return { createArtifact: { artifact: { id: artifact.id, state, artifactSequence: { latestArtifact: null } } } };
      }
      case 'CreateArtifactManifest': {
        const artifact = this.#known(input['artifactID']);
        artifact.manifestDigest = String(input['digest']);
        const file = input['includeUpload'] === true ? { id: 'f', ...address(`${artifact.id}/manifest`) } : { id: 'f' };
        return { createArtifactManifest: { artifactManifest: { id: `m-${artifact.id}`, file } } };
      }
      case 'CreateArtifactFiles': {
        const wanted = input['artifactFiles'] as readonly { artifactID: string; name: string; md5: string }[];
        const edges = wanted.map(({ artifactID, name, md5 }) => {
          const { announced, id } = this.#known(artifactID);
          announced.set(name, md5);
          return { node: { ...address(`${id}/files?file=${encodeURIComponent(name)}`), artifact: { id } } };
        });
        return { createArtifactFiles: { files: { edges } } };
      }
      default: {
        const artifact = this.#known(input['artifactID']);
        this.#check(artifact);
        artifact.committed = true;
        return { commitArtifact: { artifact: { id: artifact.id, digest: artifact.digest } } };
      }
    }
  }

  /** @param place `artifact/<id>/manifest` or `artifact/<id>/files`. */
  put(place: string, name: string, bytes: Buffer): object {
    const [, id, kind] = place.split('/');
    const artifact = this.#known(id);
    if (kind === 'manifest') artifact.manifest = bytes;
    else artifact.files.set(name, bytes);
    return {};
  }

  #made(input: Variables): StubArtifact {
    const artifact = {
      id: `a${this.all.length}`,
      type: String(input['artifactTypeName']),
      collection: String(input['artifactCollectionName']),
      clientId: String(input['clientID']),
      digest: String(input['digest']),
      files: new Map<string, Buffer>(),
      announced: new Map<string, string>(),
      manifestDigest: '',
      manifest: null,
      committed: false,
    };
    this.all.push(artifact);
    return artifact;
  }

  #known(id: unknown): StubArtifact {
    const artifact = this.all.find((one) => one.id === id);
    if (artifact === undefined) throw new Error(`no artifact ${String(id)}`);
    return artifact;
  }

  /** All sums: of the files, of the manifest, and of the artifact. */
  #check({ files, announced, manifest, manifestDigest, digest }: StubArtifact): void {
    const { contents } = JSON.parse(String(manifest)) as { contents: Record<string, { digest: string; size: number }> };
    const entries = Object.entries(contents).sort(([a], [b]) => (a < b ? -1 : 1));
    for (const [name, entry] of entries) {
      const bytes = files.get(name);
      const sum = bytes === undefined ? null : md5(bytes, 'base64');
      if (sum !== entry.digest || sum !== announced.get(name) || bytes?.length !== entry.size) {
        this.wrong.push(`artifact: ${name} is not what its manifest says`);
      }
    }
    const whole = ['wandb-artifact-manifest-v1\n', ...entries.map(([name, entry]) => `${name}:${entry.digest}\n`)];
    if (md5(Buffer.from(whole.join('')), 'hex') !== digest) this.wrong.push('artifact: its digest is another');
    if (manifest === null || md5(manifest, 'base64') !== manifestDigest) this.wrong.push('artifact: no such manifest');
  }
}

function md5(bytes: Buffer, form: 'hex' | 'base64'): string {
  return createHash('md5').update(bytes).digest(form);
}
