import type { PointRecovery } from '../account.ts'
import { decodeHex, encodeHex, encodeUtf8, HASH_BYTES, sha256 } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { formsOf } from '../json/forms.ts'
import {
  hasExactMembers,
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '../json/value.ts'
import { type LogDomain, verifyTreeHead } from '../tree-head.ts'

const { textOf } = formsOf('invalid_boot_statement', 'boot statement: ')

export const BOOT_STATEMENT_FORMAT = 'affidavit-boot-statement'

/** Maximum heads in one statement. A gateway with more logs sends the heads of its newest logs. */
export const BOOT_HEADS_MAX = 1_000

/** A head of another notary's log, signed by that notary, as an enclave receives it. */
export type BootHead = {
  /** 0x, lower case. */
  readonly notary: string
  /** At least 1. */
  readonly size: number
  /** Hex without prefix. */
  readonly root: string
  /** 0x and 65 bytes of hex. */
  readonly signature: string
}

/** A boot statement as the gateway serves it. */
export type BootStatement = {
  readonly heads: readonly BootHead[]
  /** The time of the document in whole seconds, Unix time. */
  readonly created_at: number
  /** Attestation document, standard base64. */
  readonly document: string
}

/**
 * Reads the heads in attacker-controlled `json`: at most BOOT_HEADS_MAX, each with exactly its
 * members in their canonical form, in ascending order of the notaries, without repetition. Throws
 * FormatError `invalid_boot_statement`. Does NOT prove that a notary signed a head: see
 * verifyBootHeads.
 */
export function parseBootHeads(json: Json | undefined): readonly BootHead[] {
  if (!isJsonArray(json) || json.length > BOOT_HEADS_MAX)
    throw invalid(`heads to be at most ${BOOT_HEADS_MAX}`)
  const heads = json.map(parseHead)
  if (heads.some(({ notary }, at) => at > 0 && notary <= (heads[at - 1]?.notary ?? '')))
    throw invalid('heads in ascending order of their notaries, each once')
  return heads
}

/**
 * Verifies that each head was signed by its notary for this chain and contract. `recover`: see
 * recoverPublicKey. Throws ProofError `wrong_signer` naming the notary, and FormatError. Does NOT
 * prove that a notary is an enclave, or that a head is the newest head of its log.
 */
export function verifyBootHeads(
  heads: readonly BootHead[],
  domain: LogDomain,
  recover?: PointRecovery,
): void {
  for (const { notary, size, root, signature } of heads) {
    const head = { size, root: decodeHex(root) }
    try {
      verifyTreeHead({ domain, head, signature: decodeHex(signature), notary }, recover)
    } catch {
      throw new ProofError('wrong_signer', `expected ${notary} to have signed its head`)
    }
  }
}

/**
 * The `user_data` of a boot statement's document, 32 bytes: SHA-256 of the statement's canonical
 * JSON. Because of the member `format`, the digest differs from that of a head attestation or a
 * boot configuration. Throws FormatError `invalid_boot_statement`.
 */
export function bootStatementUserData({
  configuration,
  notary,
  heads,
}: {
  /** Digest of the enclave's boot configuration, 32 bytes (digestBootConfiguration). */
  readonly configuration: Uint8Array
  /** The enclave's own log: its notary's address, 0x and lower case. */
  readonly notary: string
  /** The result of parseBootHeads. */
  readonly heads: readonly BootHead[]
}): Uint8Array {
  if (configuration.length !== HASH_BYTES) throw invalid(`a configuration of ${HASH_BYTES} bytes`)
  if (!ADDRESS_FORM.test(notary)) throw invalid('an address in lower case')
  const statement = {
    format: BOOT_STATEMENT_FORMAT,
    version: 1,
    boot_configuration: encodeHex(configuration),
    notary,
    heads: heads.map(
      ({ notary, size, root, signature }): JsonObject => ({ notary, size, root, signature }),
    ),
  }
  return sha256(encodeUtf8(canonicalizeJson(statement)))
}

const HEAD_MEMBERS = ['notary', 'size', 'root', 'signature'] as const
const ADDRESS_FORM = /^0x[0-9a-f]{40}$/
const ROOT = { form: /^[0-9a-f]{64}$/, expectation: '32 bytes of hex' }
const SIGNATURE = { form: /^0x[0-9a-f]{130}$/, expectation: '0x and 65 bytes of hex' }

function parseHead(json: Json): BootHead {
  if (!isJsonObject(json) || !hasExactMembers(json, HEAD_MEMBERS))
    throw invalid(`a head of exactly ${HEAD_MEMBERS.join(', ')}`)
  const { notary, size, root, signature } = json
  if (typeof notary !== 'string' || !ADDRESS_FORM.test(notary))
    throw invalid('notary in lower case')
  if (!isCount(size) || size === 0) throw invalid('size from 1 to 2^53-1')
  return {
    notary,
    size,
    root: textOf(root, 'root', ROOT),
    signature: textOf(signature, 'signature', SIGNATURE),
  }
}

function invalid(expectation: string): FormatError {
  return new FormatError('invalid_boot_statement', `boot statement: expected ${expectation}`)
}
