import { createHash } from 'node:crypto'
import { encodeHex } from '../../attestation/bytes.ts'
import { type EncryptionKey, encryptionKeyDigest } from '../../attestation/encryption-key.ts'
import type { LogDomain } from '../../attestation/tree-head.ts'
import { CountTable } from '../log/count-table.ts'
import { describeError, type EventLog } from '../logger.ts'
import type { NotaryAccount } from '../notary-key.ts'
import { KEY_BYTES, type KeyPair, publicKeyOf } from './hpke.ts'

/** How often a new key is made, milliseconds. */
export const ROTATION_MS = 3_600_000
/** How long a key is usable, milliseconds: calls under an older one need not fail. */
export const LIFETIME_MS = 2 * ROTATION_MS
/**
 * A key is stated to be usable from so long ago, for callers whose clocks are slow. So it is stated
 * to end so much sooner than it does, which calls that are on their way then need.
 */
const CLOCK_ROOM_SECONDS = 60
/** Wait after a key could not be made. */
const RETRY_MS = 5_000

/**
 * Encapsulated keys that are remembered under one key: a new key is made before there are more. The
 * memory is 13 to 27 bytes for each.
 */
const SEEN_MAX = 2 ** 20

/**
 * Keys at once. Where calls fill their memories faster than keys end, the oldest goes before its
 * time: its calls are refused as those of an ended one.
 */
export const KEYS_MAX = 4

/** A key of the ring, as a call is opened with it. */
export type RingKey = KeyPair & {
  /**
   * Takes the encapsulated key of a call that was opened. False when it was taken before: then the
   * call is a repeated one.
   */
  take(enc: Uint8Array): boolean
}

/** The enclave's keys that calls are encrypted to. The secrets stay inside. */
export type KeyRing = {
  /** Those that are usable, the newest first. A secret is overwritten when its key ends. */
  readonly keys: () => readonly RingKey[]
  /** The same keys, as the notary signed them. */
  readonly statements: () => readonly EncryptionKey[]
  /** Erases all. */
  readonly stop: () => void
}

type KeyRingOptions = {
  /** Gives so many bytes of the security module's randomness. */
  readonly random: (length: number) => Promise<Uint8Array>
  readonly account: Pick<NotaryAccount, 'sign'>
  readonly domain: LogDomain
  /** The enclave's clock, Unix milliseconds: for what is stated. */
  readonly now: () => number
  /** Milliseconds of a clock that is never set: for when a key ends. */
  readonly monotonic: () => number
  readonly log: EventLog
  /** Default: SEEN_MAX. */
  readonly seenMax?: number
}

type KeptKey = RingKey & {
  readonly statement: EncryptionKey
  readonly endsAtMs: number
  /** Whether no more encapsulated keys can be remembered. */
  readonly isFull: () => boolean
}

/**
 * Makes the first key, and then a new one every ROTATION_MS, or before the memory of the newest is
 * full. Ended keys are overwritten. Throws what `random` throws when the first cannot be made.
 */
export async function openKeyRing(options: KeyRingOptions): Promise<KeyRing> {
  const ring = new Ring(options)
  await ring.begin()
  return {
    keys: () => ring.usable(),
    statements: () => ring.usable().map(({ statement }) => statement),
    stop: () => ring.stop(),
  }
}

class Ring {
  readonly #options: KeyRingOptions
  readonly #seenMax: number
  /** The newest first. */
  #kept: readonly KeptKey[] = []
  #rotateAtMs = 0
  #timer: NodeJS.Timeout | undefined
  #isRotating = false
  #isStopped = false

  constructor(options: KeyRingOptions) {
    this.#options = options
    this.#seenMax = options.seenMax ?? SEEN_MAX
  }

  async begin(): Promise<void> {
    await this.#addKey()
    this.#rotateAtMs = this.#options.monotonic() + ROTATION_MS
    this.#schedule()
  }

  /** Keys that are neither ended nor full: a full key cannot recognize a repeated call. */
  usable(): readonly KeptKey[] {
    const now = this.#options.monotonic()
    return this.#kept.filter((key) => key.endsAtMs > now && !key.isFull())
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
    this.#keep([])
  }

  /** Keeps these keys, and overwrites the secrets of all others. */
  #keep(keys: readonly KeptKey[]): void {
    for (const key of this.#kept) if (!keys.includes(key)) key.secretKey.fill(0)
    this.#kept = keys
  }

  async #addKey(): Promise<void> {
    const { random, log } = this.#options
    const secretKey = await random(KEY_BYTES)
    try {
      const fingerprintKey = await random(KEY_BYTES)
      if (this.#isStopped) throw new Error('stopped')
      const key = makeKey(secretKey, {
        ...this.#options,
        fingerprintKey,
        seenMax: this.#seenMax,
        whenNearlyFull: (full) => {
          // Once: an older key fills up under calls of callers who have not seen the newer one.
          if (full === this.#kept[0]) this.#rotate()
        },
      })
      this.#keep([key, ...this.#kept].slice(0, KEYS_MAX))
      log('info', 'encryption key made', { key: key.statement.public_key })
    } catch (error) {
      secretKey.fill(0)
      throw error
    }
  }

  async #rotate(): Promise<void> {
    if (this.#isRotating || this.#isStopped) return
    this.#isRotating = true
    let waitMs = ROTATION_MS
    try {
      await this.#addKey()
    } catch (error) {
      waitMs = RETRY_MS
      if (!this.#isStopped)
        this.#options.log('error', 'encryption key not made', describeError(error))
    }
    this.#isRotating = false
    this.#rotateAtMs = this.#options.monotonic() + waitMs
    this.#schedule()
  }

  /** Wakes up for the next key that ends, or is due. */
  #schedule(): void {
    clearTimeout(this.#timer)
    if (this.#isStopped) return
    const nextMs = Math.min(this.#rotateAtMs, ...this.#kept.map(({ endsAtMs }) => endsAtMs))
    this.#timer = setTimeout(() => this.#wake(), Math.max(nextMs - this.#options.monotonic(), 1))
  }

  #wake(): void {
    const now = this.#options.monotonic()
    this.#keep(this.#kept.filter(({ endsAtMs }) => endsAtMs > now))
    if (now >= this.#rotateAtMs) this.#rotate()
    if (!this.#isRotating) this.#schedule()
  }
}

function makeKey(
  secretKey: Uint8Array,
  parts: KeyRingOptions & {
    readonly fingerprintKey: Uint8Array
    readonly seenMax: number
    readonly whenNearlyFull: (key: KeptKey) => void
  },
): KeptKey {
  const publicKey = publicKeyOf(secretKey)
  const notBefore = Math.floor(parts.now() / 1000) - CLOCK_ROOM_SECONDS
  const stated = {
    public_key: encodeHex(publicKey),
    not_before: notBefore,
    not_after: notBefore + LIFETIME_MS / 1000,
  }
  const signature = parts.account.sign(encryptionKeyDigest(parts.domain, stated))
  const seen = new CountTable(parts.monotonic())
  const key: KeptKey = {
    secretKey,
    publicKey,
    statement: { ...stated, signature: `0x${encodeHex(signature)}` },
    endsAtMs: parts.monotonic() + LIFETIME_MS,
    isFull: () => seen.size >= parts.seenMax,
    take: (enc) => {
      // That key is secret, so no caller can find two encapsulated keys that count as one.
      const fingerprint = createHash('sha256').update(parts.fingerprintKey).update(enc).digest()
      if (seen.find(fingerprint) > 0) return false
      seen.set(fingerprint, 1)
      // Before it is full: the calls that come until there is a new key need room, too.
      if (seen.size * 4 > parts.seenMax * 3) parts.whenNearlyFull(key)
      return true
    },
  }
  return key
}
