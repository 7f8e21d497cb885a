import { createHash } from 'node:crypto'
import { encodeHex } from '../../attestation/bytes.ts'
import { type EncryptionKey, encryptionKeyDigest } from '../../attestation/encryption-key.ts'
import type { LogDomain } from '../../attestation/tree-head.ts'
import { CountTable } from '../log/count-table.ts'
import { describeError, type Log } from '../logger.ts'
import type { Account } from '../notary-key.ts'
import { KEY_BYTES, type KeyPair, publicKeyOf } from './hpke.ts'

/** How often a new key is made, milliseconds. */
export const ROTATION_MS = 3_600_000
/** How long a key is usable, milliseconds: calls under an older one need not fail. */
export const LIFETIME_MS = 2 * ROTATION_MS
/** Wait after a key could not be made. */
const RETRY_MS = 5_000

/**
 * Encapsulated keys that are remembered under one key: a new key is made before there are more. The
 * memory is 13 to 27 bytes for each.
 */
export const SEEN_MAX = 2 ** 20

/** A key of the ring, as a call is opened with it. */
export type RingKey = KeyPair & {
  /**
   * Takes the encapsulated key of a call that was opened. False when it was taken before, or when
   * no more can be remembered: then the call must be refused, since it may be a repeated one.
   */
  take(enc: Uint8Array): boolean
}

/** The enclave's keys that calls are encrypted to. The secrets stay inside. */
export type KeyRing = {
  /** Those that are usable, the newest first. */
  readonly keys: () => readonly RingKey[]
  /** The same as the notary vouches for them. */
  readonly statements: () => readonly EncryptionKey[]
  /** Erases all. */
  readonly stop: () => void
}

type KeyRingOptions = {
  /** Gives so many bytes of the security module's randomness. */
  readonly random: (length: number) => Promise<Uint8Array>
  readonly account: Pick<Account, 'sign'>
  readonly domain: LogDomain
  /** The enclave's clock, Unix milliseconds: for what is stated. */
  readonly now: () => number
  /** Milliseconds of a clock that is never set: for when a key ends. */
  readonly monotonic: () => number
  readonly log: Log
  readonly seenMax?: number
}

type KeptKey = RingKey & {
  readonly statement: EncryptionKey
  readonly endsAtMs: number
  readonly size: () => number
}

/**
 * Makes the first key, and then a new one every ROTATION_MS, or before the memory of one is full.
 * Ended keys are overwritten. Throws what `random` throws when the first cannot be made.
 */
export async function openKeyRing(options: KeyRingOptions): Promise<KeyRing> {
  const { random, monotonic, log, seenMax = SEEN_MAX } = options
  let kept: readonly KeptKey[] = []
  let timer: NodeJS.Timeout | undefined
  let isStopped = false

  async function addKey(): Promise<void> {
    const secretKey = Buffer.from(await random(KEY_BYTES))
    const fingerprintKey = await random(KEY_BYTES)
    const key = makeKey(secretKey, { ...options, fingerprintKey, seenMax, whenFull: rotate })
    eraseEnded()
    kept = [key, ...kept]
    log('info', 'encryption key made', { key: key.statement.public_key })
  }

  function eraseEnded(): void {
    const ended = kept.filter(({ endsAtMs }) => endsAtMs <= monotonic())
    for (const { secretKey } of ended) secretKey.fill(0)
    kept = kept.filter((key) => !ended.includes(key))
  }

  let isRotating = false
  async function rotate(): Promise<void> {
    if (isRotating || isStopped) return
    isRotating = true
    clearTimeout(timer)
    let delayMs = ROTATION_MS
    try {
      await addKey()
    } catch (error) {
      delayMs = RETRY_MS
      eraseEnded()
      log('error', 'encryption key not made', describeError(error))
    }
    isRotating = false
    if (!isStopped) timer = setTimeout(rotate, delayMs)
  }

  await addKey()
  timer = setTimeout(rotate, ROTATION_MS)
  const usable = () => kept.filter(({ endsAtMs }) => endsAtMs > monotonic())
  return {
    keys: usable,
    statements: () => usable().map(({ statement }) => statement),
    stop: () => {
      isStopped = true
      clearTimeout(timer)
      for (const { secretKey } of kept) secretKey.fill(0)
      kept = []
    },
  }
}

function makeKey(
  secretKey: Buffer,
  so: KeyRingOptions & {
    readonly fingerprintKey: Uint8Array
    readonly seenMax: number
    readonly whenFull: () => void
  },
): KeptKey {
  const publicKey = publicKeyOf(secretKey)
  const notBefore = Math.floor(so.now() / 1000)
  const stated = {
    public_key: encodeHex(publicKey),
    not_before: notBefore,
    not_after: notBefore + LIFETIME_MS / 1000,
  }
  const signature = so.account.sign(encryptionKeyDigest(so.domain, stated))
  const seen = new CountTable(so.monotonic())
  return {
    secretKey,
    publicKey,
    statement: { ...stated, signature: `0x${encodeHex(signature)}` },
    endsAtMs: so.monotonic() + LIFETIME_MS,
    size: () => seen.size,
    take: (enc) => {
      // Nobody else knows that key, so nobody can find two that are taken for one.
      const fingerprint = createHash('sha256').update(so.fingerprintKey).update(enc).digest()
      if (seen.size >= so.seenMax || seen.find(fingerprint) > 0) return false
      seen.set(fingerprint, 1)
      // Before it is full: the calls that come until there is a new key need room, too.
      if (seen.size * 4 > so.seenMax * 3) so.whenFull()
      return true
    },
  }
}
