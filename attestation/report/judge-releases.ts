import { decodeHex, encodeHex } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import type { Judgement } from '../evidence/verdict.ts'
import { attempt } from '../finding.ts'
import type { Release } from '../release/release.ts'
import { acceptedMeasurements, type ReleaseEntry } from '../release/release-list.ts'
import {
  type ReleaseSignature,
  type ReleaseTrust,
  signedBytes,
  verifyReleaseSignatures,
} from '../release/release-signatures.ts'
import type { ReleaseFile } from './release-file.ts'

/** One signature in a file. `isTrusted`: null without trusted keys. */
type SignerFacts = {
  readonly public_key: string
  readonly holds: boolean
  readonly isTrusted: boolean | null
}

export type ReleaseJudgement = {
  readonly signers: readonly SignerFacts[]
  /** `incomplete`: all signatures are valid, but the reader has no trusted keys. */
  readonly verdict: Judgement<string>['verdict']
  /** Why the file is invalid. Null if it is valid. */
  readonly fault: 'signature' | 'too few signers' | null
  /** The numbers of trusted keys: how many signed the file, and how many must sign it. */
  readonly trusted: number
  readonly needed: number
}

/** Without trusted keys, the result does not show who signed. */
export function judgeReleaseFile(file: ReleaseFile, trust: ReleaseTrust | null): ReleaseJudgement {
  const keys = trust === null ? null : new Set(trust.keys.map(encodeHex))
  const signers = file.signed.signatures.map((signature) => ({
    public_key: signature.public_key,
    holds: holds(file, signature),
    isTrusted: keys?.has(signature.public_key) ?? null,
  }))
  const needed = trust?.signersMin ?? 1
  const ours = keys === null ? signers : signers.filter(({ isTrusted }) => isTrusted)
  const found = { signers, trusted: keys === null ? 0 : ours.length, needed }
  if (ours.some((signer) => !signer.holds))
    return { ...found, verdict: 'invalid', fault: 'signature' }
  if (keys === null) return { ...found, verdict: 'incomplete', fault: null }
  if (ours.length < needed) return { ...found, verdict: 'not_accepted', fault: 'too few signers' }
  return { ...found, verdict: 'verified', fault: null }
}

/** True if a signature, by any key, is valid for the content of the file. */
export function holds(file: ReleaseFile, signature: ReleaseSignature): boolean {
  const payload = file.kind === 'release' ? file.signed.release : file.signed.list
  const message = signedBytes(file.signed.format, payload)
  const verified = attempt(() =>
    verifyReleaseSignatures([signature], message, { keys: [decodeHex(signature.public_key)] }),
  )
  if ('value' in verified) return true
  if (verified.fault instanceof ProofError || verified.fault instanceof FormatError) return false
  throw verified.fault
}

/**
 * Returns `accepted` if a document made at `atMs` with this release is accepted. Otherwise returns
 * why it is refused.
 */
export function statusOf(
  { release }: { readonly release: Release },
  all: readonly ReleaseEntry[],
  atMs: number,
): { readonly status: string; readonly message: string } {
  const refused = acceptedMeasurements(all, atMs).refused.find((entry) => entry.release === release)
  return refused
    ? { status: refused.reason, message: refused.message }
    : { status: 'accepted', message: '' }
}
