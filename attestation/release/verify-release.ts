import { RELEASE_FORMAT, type Release, type SignedRelease } from './release.ts'
import { RELEASES_FORMAT, type ReleaseList, type SignedReleaseList } from './release-list.ts'
import {
  addSignature,
  createSignature,
  type ReleaseTrust,
  signedBytes,
  verifyReleaseSignatures,
} from './release-signatures.ts'

/** `signers`: the trusted keys that signed, 64 hex digits each. */
type VerifiedRelease = { readonly release: Release; readonly signers: readonly string[] }

type VerifiedReleaseList = { readonly list: ReleaseList; readonly signers: readonly string[] }

/**
 * Returns the release if trusted keys signed it. Throws ProofError `release_signature`,
 * `release_not_signed`; FormatError `invalid_release_key` for an invalid trust. Does NOT prove that
 * the measurements belong to the commit (build it and compare), that the code is good, or that the
 * release is not revoked (only a list states revocations).
 */
export function verifyRelease(
  { release, signatures }: SignedRelease,
  trust: ReleaseTrust,
): VerifiedRelease {
  return {
    release,
    signers: verifyReleaseSignatures(signatures, signedBytes(RELEASE_FORMAT, release), trust),
  }
}

/**
 * Returns the list if trusted keys signed it. Throws as verifyRelease does. Does NOT prove that the
 * operator has no newer list: see checkNotRolledBack.
 *
 * @example
 * const signed = parseSignedReleaseList(parseStrictJson(releasesFile))
 * const { list } = verifyReleaseList(signed, { keys: [parseReleaseKey(publicKey)] })
 * console.log(list.releases.map(({ release }) => release.version)) // [ '1.4.0', '1.3.9', '1.3.8' ]
 */
export function verifyReleaseList(
  { list, signatures }: SignedReleaseList,
  trust: ReleaseTrust,
): VerifiedReleaseList {
  return {
    list,
    signers: verifyReleaseSignatures(signatures, signedBytes(RELEASES_FORMAT, list), trust),
  }
}

/** Signs a release with a secret of 32 bytes. `others`: the release's older signatures. */
export function signRelease(
  release: Release,
  secretKey: Uint8Array,
  others: SignedRelease['signatures'] = [],
): SignedRelease {
  const signature = createSignature(signedBytes(RELEASE_FORMAT, release), secretKey)
  return { format: RELEASE_FORMAT, release, signatures: addSignature(others, signature) }
}

/** Signs a list with a secret of 32 bytes. `others`: the list's older signatures. */
export function signReleaseList(
  list: ReleaseList,
  secretKey: Uint8Array,
  others: SignedReleaseList['signatures'] = [],
): SignedReleaseList {
  const signature = createSignature(signedBytes(RELEASES_FORMAT, list), secretKey)
  return { format: RELEASES_FORMAT, list, signatures: addSignature(others, signature) }
}
