import { digestBootConfiguration } from '../evidence/boot-configuration.ts'
import { parseBootConfiguration } from '../evidence/boot-facts.ts'
import { parseExactJson } from '../json/parse-strict.ts'
import { isJsonObject, type Json, memberOf } from '../json/value.ts'
import { parseSignedRelease, type SignedRelease } from '../release/release.ts'
import {
  entryOf,
  parseSignedReleaseList,
  RELEASES_FORMAT,
  type ReleaseEntry,
  type SignedReleaseList,
} from '../release/release-list.ts'
import type { ReleaseTrust } from '../release/release-signatures.ts'
import { verifyRelease, verifyReleaseList } from '../release/verify-release.ts'

/** Returns the digest (32 bytes) of the boot configuration in a JSON file. Throws FormatError. */
export function readConfigurationDigest(file: Uint8Array): Uint8Array {
  return digestConfiguration(parseExactJson(file))
}

/** Returns the digest (32 bytes) of a boot configuration. Throws FormatError. */
export function digestConfiguration(configuration: Json): Uint8Array {
  parseBootConfiguration(configuration)
  return digestBootConfiguration(isJsonObject(configuration) ? configuration : {})
}

/** A signed file about releases. Its signatures are not checked yet. */
export type ReleaseFile =
  | { readonly kind: 'release'; readonly signed: SignedRelease }
  | { readonly kind: 'list'; readonly signed: SignedReleaseList }

/** Parses the signed release, or the signed list of releases, in `json`. Throws FormatError. */
export function parseReleaseFile(json: Json): ReleaseFile {
  const format = isJsonObject(json) ? memberOf(json, 'format') : undefined
  if (format === RELEASES_FORMAT) return { kind: 'list', signed: parseSignedReleaseList(json) }
  return { kind: 'release', signed: parseSignedRelease(json) }
}

type ExpectedReleases = {
  readonly entries: readonly ReleaseEntry[]
  /** 64 hex digits each. */
  readonly signers: readonly string[]
}

/**
 * Returns the releases in a file that trusted keys signed. Throws as verifyRelease does. Does NOT
 * prove that a list is the newest, or that a single release was not revoked.
 */
export function readExpectedReleases(file: ReleaseFile, trust: ReleaseTrust): ExpectedReleases {
  switch (file.kind) {
    case 'release': {
      const { release, signers } = verifyRelease(file.signed, trust)
      return { entries: [entryOf(release)], signers }
    }
    case 'list': {
      const { list, signers } = verifyReleaseList(file.signed, trust)
      return { entries: list.releases, signers }
    }
  }
}
