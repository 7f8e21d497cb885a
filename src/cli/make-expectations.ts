import { encodeHex } from '#attestation/bytes.ts'
import { ownMembers } from '#attestation/own-members.ts'
import { readExpectedPolicy } from './expectations-file.ts'
import { openConfigurationDigest, readRoots } from './expected-evidence.ts'
import { CliError, EXIT_CODES } from './faults.ts'
import type { ReleaseOptions } from './options.ts'
import { jsonText } from './printable.ts'
import { openSignedReleases } from './release/accepted-releases.ts'
import { readReleaseKey } from './release/release-files.ts'

export type ExpectOptions = ReleaseOptions & {
  readonly pcr?: ReadonlyMap<number, Uint8Array>
  readonly configuration?: readonly string[]
  readonly root?: readonly string[]
  readonly output?: string
}

/**
 * Returns a file for `--expect` and for the client's `connect`. Verifies the signatures of
 * releases. Throws CliError, also if the file would accept any code or any configuration.
 */
export async function makeExpectations(options: ExpectOptions): Promise<string> {
  const { release = [], releaseKey = [], releaseSigners, pcr, ...more } = ownMembers(options)
  const { configuration = [], root = [] } = more
  if (release.length === 0 && pcr === undefined)
    throw new CliError('expected --release with --release-key, or --pcr', EXIT_CODES.usage)
  const opened = (await openSignedReleases(options)) ?? []
  const releases = opened.map(({ file }) => file.signed)
  const keys = await Promise.all(releaseKey.map(readReleaseKey))
  const configurations = await Promise.all(configuration.map(openConfigurationDigest))
  const roots = (await Promise.all(root.map(readRoots))).flat().map(encodeHex)
  const expectations = {
    ...(releases.length === 0 ? {} : { releases, releaseKeys: keys.map(encodeHex) }),
    ...(releaseSigners === undefined ? {} : { releaseSigners }),
    ...(pcr === undefined ? {} : { measurements: [namesOf(pcr)] }),
    ...(configurations.length === 0 ? {} : { configurations: configurations.map(encodeHex) }),
    ...(roots.length === 0 ? {} : { roots }),
  }
  readExpectedPolicy(expectations, 'these options')
  return jsonText(expectations)
}

function namesOf(pcrs: ReadonlyMap<number, Uint8Array>): Readonly<Record<string, string>> {
  return Object.fromEntries([...pcrs].map(([index, value]) => [`PCR${index}`, encodeHex(value)]))
}
