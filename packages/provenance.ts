import { createHash } from 'node:crypto'
import type { FileTree } from '#enclave/image/file-tree.ts'
import type { BundledPackage } from './bundled-packages.ts'

export type BuiltPackage = {
  readonly name: string
  readonly version: string
  readonly license: string
  readonly file: string
  readonly tarball: Uint8Array
  readonly files: FileTree
  readonly bundled: readonly BundledPackage[]
  /** Version ranges of the packages that npm installs with this package, by name. */
  readonly dependencies: Readonly<Record<string, string>>
}

export type BuildFacts = {
  /** The checked-out commit, hex. */
  readonly commit: string
  readonly committedAtMs: number
  /**
   * Sources that differ from the commit. If there are any, another build does not produce the same
   * bytes.
   */
  readonly uncommitted: readonly string[]
  /** Versions by name. */
  readonly tools: Readonly<Record<string, string>>
}

/** Hex. */
type Digests = { readonly sha256: string; readonly sha512: string }

export function digestsOf(bytes: Uint8Array): Digests {
  const digest = (name: string) => createHash(name).update(bytes).digest('hex')
  return { sha256: digest('sha256'), sha512: digest('sha512') }
}

/**
 * Writes an in-toto statement (v1) about a tarball's sources, with SLSA's provenance (v1). Its
 * subjects are the tarball and every file in it. The statement is not signed. It shows what to
 * build and to compare, but not that its claims are true.
 */
export function writeProvenance(built: BuiltPackage, facts: BuildFacts): object {
  const { commit, uncommitted, tools } = facts
  const files = [...built.files].flatMap(([path, entry]) =>
    entry.kind === 'file' ? [{ name: `package/${path}`, digest: digestsOf(entry.data) }] : [],
  )
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [
      { name: built.file, digest: digestsOf(built.tarball) },
      ...files.toSorted((one, other) => (one.name < other.name ? -1 : 1)),
    ],
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: 'urn:affidavit:npm-run-package:v1',
        externalParameters: { package: built.name, version: built.version },
        internalParameters: { uncommitted, tools },
        resolvedDependencies: [{ name: 'sources', digest: { gitCommit: commit } }],
      },
      runDetails: { builder: { id: 'urn:affidavit:packages' } },
    },
  }
}

/** A component that is in the package's files, or that npm installs with the package. */
type Part = {
  readonly ref: string
  readonly component: object
}

/**
 * Lists the parts of a package, as CycloneDX 1.6. npm packages whose code is in the files have a
 * version and a digest. Packages that npm installs have a version range.
 */
export function writeSbom(built: BuiltPackage, { committedAtMs }: BuildFacts): object {
  const { name, version, license } = built
  const parts = [...built.bundled.map(describeBundled), ...describeInstalled(built.dependencies)]
  const ref = purlOf(name, version)
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${uuidOf(digestsOf(built.tarball).sha256)}`,
    version: 1,
    metadata: {
      timestamp: new Date(committedAtMs).toISOString(),
      lifecycles: [{ phase: 'build' }],
      component: {
        type: 'library',
        'bom-ref': ref,
        ...namesOf(name),
        version,
        purl: ref,
        licenses: [{ license: { id: license } }],
        hashes: hashesOf(digestsOf(built.tarball)),
      },
    },
    components: parts.map(({ component }) => component),
    dependencies: [
      { ref, dependsOn: parts.map((part) => part.ref) },
      ...parts.map((part) => ({ ref: part.ref })),
    ],
  }
}

function describeBundled({ name, version, license, sha512 }: BundledPackage): Part {
  const ref = purlOf(name, version)
  const component = {
    type: 'library',
    'bom-ref': ref,
    ...namesOf(name),
    version,
    purl: ref,
    scope: 'required',
    licenses: [/^[\w.+-]+$/.test(license) ? { license: { id: license } } : { expression: license }],
    ...(sha512 === null ? {} : { hashes: [{ alg: 'SHA-512', content: sha512 }] }),
    properties: [{ name: 'affidavit:how', value: 'bundled' }],
  }
  return { ref, component }
}

/** npm chooses the exact version when it installs the package. */
function describeInstalled(ranges: Readonly<Record<string, string>>): readonly Part[] {
  return Object.entries(ranges).map(([name, range]) => {
    const ref = purlOf(name)
    const properties = [
      { name: 'affidavit:how', value: 'installed' },
      { name: 'affidavit:range', value: range },
    ]
    const component = { type: 'library', 'bom-ref': ref, ...namesOf(name), purl: ref, properties }
    return { ref, component }
  })
}

function namesOf(name: string): { readonly group?: string; readonly name: string } {
  const [scope = '', rest] = name.split('/')
  return rest === undefined ? { name } : { group: scope, name: rest }
}

/** Returns a package URL. A scope's at sign is percent-encoded in the URL. */
function purlOf(name: string, version?: string): string {
  return `pkg:npm/${name.replace('@', '%40')}${version === undefined ? '' : `@${version}`}`
}

function hashesOf({ sha256, sha512 }: Digests): readonly object[] {
  return [
    { alg: 'SHA-256', content: sha256 },
    { alg: 'SHA-512', content: sha512 },
  ]
}

/** A UUID of version 8 (RFC 9562). The same tarball always has the same UUID. */
function uuidOf(hex: string): string {
  const bytes = Buffer.from(hex, 'hex').subarray(0, 16)
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6)
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8)
  const text = bytes.toString('hex')
  return [
    text.slice(0, 8),
    text.slice(8, 12),
    text.slice(12, 16),
    text.slice(16, 20),
    text.slice(20),
  ].join('-')
}
