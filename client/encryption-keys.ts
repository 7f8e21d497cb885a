import { equalBytes } from '#attestation/bytes.ts'
import { FormatError, ProofError } from '#attestation/errors.ts'
import { parseBootConfiguration } from '#attestation/evidence/boot-facts.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
} from '#attestation/json/value.ts'
import { NOTARIES_MAX } from '#attestation/notary-list.ts'
import { parseEncryptionKey, verifyEncryptionKey } from '#attestation/verify-encryption-key.ts'
import type { AttestedNotary } from './attest-notary.ts'
import type { EncryptionTarget } from './encryption.ts'
import { invalidReply } from './errors.ts'

/** Maximum number of a notary's keys. A notary makes a key every hour, valid for two hours. */
const KEYS_MAX = 16
/** A key is not used in its last minute, so that the enclave reads the call in time. */
const KEY_MARGIN_MS = 60_000

/** The notary signed this key. `endMs`: when the key expires, Unix milliseconds. */
export type UsableKey = EncryptionTarget & { readonly endMs: number }

/** The gateway states these keys. They are not verified. */
export type NamedNotary = { readonly notary: string; readonly encryptionKeys: readonly Json[] }

/** The client does not trust this list: it requests a document from each enclave. */
export function readNamedNotaries(json: JsonObject): readonly NamedNotary[] {
  const list = memberOf(json, 'notaries')
  if (!isJsonArray(list) || list.length > NOTARIES_MAX)
    throw invalidReply(`notaries: expected an array of at most ${NOTARIES_MAX}`)
  const named = list.map((entry): NamedNotary => {
    const members = isJsonObject(entry) ? entry : {}
    const notary = memberOf(members, 'notary')
    if (typeof notary !== 'string' || !ADDRESS.test(notary))
      throw invalidReply('notaries: expected the address of each')
    const keys = memberOf(members, 'encryption_keys')
    if (!isJsonArray(keys) || keys.length > KEYS_MAX)
      throw invalidReply(`encryption_keys: expected an array of at most ${KEYS_MAX}`)
    return { notary, encryptionKeys: keys }
  })
  return [...new Map(named.map((entry) => [entry.notary, entry])).values()]
}

/** Ignores keys that this notary did not sign. */
export function keysOfNotary(
  { notary, configuration }: AttestedNotary,
  { stated, atMs }: { readonly stated: readonly Json[]; readonly atMs: number },
): readonly UsableKey[] {
  const { chainId, contract } = parseBootConfiguration(configuration)
  return stated.flatMap((json) => {
    const key = readKey(json, { domain: { chainId, contract }, notary, atMs })
    return key === null ? [] : [{ ...key, notary }]
  })
}

/** The enclave that a call is sent to. */
export type CallTarget = {
  /** 0x, lower case. */
  readonly notary: string
  /** The key for the call. Null: the call is not encrypted. */
  readonly publicKey: Uint8Array | null
}

export type WantedTarget = {
  readonly encrypt: boolean
  /** The notary that the caller demands. Null: any. */
  readonly only: string | null
  /** The notary that got the call before. It is preferred. */
  readonly latest: string | null
  /**
   * The target that the gateway just refused: the enclaves are listed again, and another target is
   * preferred. Otherwise null.
   */
  readonly gone: CallTarget | null
}

/**
 * Returns a random target, first of those other than `gone`, and of these first one of `latest`.
 * Undefined without a target.
 */
export function chooseTarget(
  usable: readonly CallTarget[],
  { latest, gone }: Pick<WantedTarget, 'latest' | 'gone'>,
): CallTarget | undefined {
  const isGone = ({ notary, publicKey }: CallTarget) =>
    notary === gone?.notary &&
    (publicKey === null || equalBytes(publicKey, gone.publicKey ?? publicKey))
  const others = preferred(usable, (one) => !isGone(one))
  const same = preferred(others, ({ notary }) => notary === latest)
  return same[Math.floor(Math.random() * same.length)]
}

function preferred(
  targets: readonly CallTarget[],
  isBetter: (one: CallTarget) => boolean,
): readonly CallTarget[] {
  const better = targets.filter(isBetter)
  return better.length > 0 ? better : targets
}

export function hasTimeLeft({ endMs }: UsableKey, atMs: number): boolean {
  return endMs - atMs > KEY_MARGIN_MS
}

/** Returns null if the key is malformed, not signed by its notary, or not usable now. */
function readKey(
  json: Json,
  parts: Omit<Parameters<typeof verifyEncryptionKey>[0], 'key'>,
): Omit<UsableKey, 'notary'> | null {
  try {
    const key = parseEncryptionKey(json)
    return { publicKey: verifyEncryptionKey({ ...parts, key }), endMs: key.not_after * 1000 }
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError) return null
    throw fault
  }
}

const ADDRESS = /^0x[0-9a-f]{40}$/
