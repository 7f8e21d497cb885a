import { createHash } from 'node:crypto'
import { encodeHex } from '#attestation/bytes.ts'
import { type EncryptionKey, encryptionKeyDigest } from '#attestation/encryption-key.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import { CLOCK_SKEW_MAX_MS } from '../attestation-keeper.ts'
import { CountTable } from '../log/count-table.ts'
import { describeError, type EventLog } from '../logger.ts'
import type { NotaryAccount } from '../notary-key.ts'
import { KEY_BYTES, type KeyPair, publicKeyOf } from './hpke.ts'

/** How often a new key is made, milliseconds. */
export const ROTATION_MS = 3_600_000
/** Lifetime of a key, milliseconds. Calls under the previous key succeed until that key expires. */
export const LIFETIME_MS = 2 * ROTATION_MS
/**
 * The stated validity starts this long before the key is made, for callers with slow clocks. The
 * stated validity ends this long before the key expires, for calls that are on their way.
 */
const CLOCK_ROOM_SECONDS = 60
const RETRY_MS = 5_000

/**
 * Maximum number of encapsulated keys that one key remembers. Each takes 13 to 27 bytes. A new key
 * is made before this number is reached.
 */
const SEEN_MAX = 2 ** 20

/**
 * Maximum number of keys at the same time. If calls fill keys faster than keys expire, the oldest
 * key is removed early, and its calls are refused.
 */
export const KEYS_MAX = 4

export type RingKey = KeyPair & {
  /**
   * Records the encapsulated key of a decrypted call. Returns false for a replay: the key was
   * already recorded.
   */
  take(enc: Uint8Array): boolean
}

/** The enclave's keys for encrypted calls. The secrets never leave the enclave. */
export type KeyRing = {
  /** The usable keys, newest first. A secret is overwritten when its key expires. */
  readonly keys: () => readonly RingKey[]
  /** Statements about the usable keys, signed by the notary. */
  readonly statements: () => readonly EncryptionKey[]
  /** Overwrites all secrets. */
  readonly stop: () => void
}

type KeyRingOptions = {
  /** Bytes from the security module. */
  readonly random: (length: number) => Promise<Uint8Array>
  readonly account: Pick<NotaryAccount, 'sign'>
  readonly domain: LogDomain
  /** The enclave's clock, Unix milliseconds. Statements contain its time. */
  readonly now: () => number
  /** A monotonic clock, milliseconds. It decides when a key expires. */
  readonly monotonic: () => number
  readonly log: EventLog
  /** Default: SEEN_MAX. */
  readonly seenMax?: number
}

type KeptKey = RingKey & {
  readonly statement: EncryptionKey
  readonly endsAtMs: number
  /** The enclave's clock minus the monotonic clock when the key was made, milliseconds. */
  readonly offsetMs: number
  /** Returns true if the key cannot remember further encapsulated keys. */
  readonly isFull: () => boolean
}

/**
 * Makes the first key, and a new key every ROTATION_MS, or earlier if the newest key is nearly
 * full, or if the enclave's clock was set: older statements contain the time before. Expired keys
 * are overwritten. Throws the error of `random` if there is no first key.
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

  /** Returns the keys that are neither expired nor full. A full key cannot detect a replay. */
  usable(): readonly KeptKey[] {
    const now = this.#options.monotonic()
    return this.#kept.filter((key) => key.endsAtMs > now && !key.isFull())
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
    this.#keep([])
  }

  /** Keeps only these keys, and overwrites the secrets of all other keys. */
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
          // Makes a new key only if the newest key is nearly full: calls can also fill an older
          // key.
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

  #schedule(): void {
    clearTimeout(this.#timer)
    if (this.#isStopped) return
    const nextMs = Math.min(this.#rotateAtMs, ...this.#kept.map(({ endsAtMs }) => endsAtMs))
    const delayMs = Math.min(Math.max(nextMs - this.#options.monotonic(), 1), RETRY_MS)
    this.#timer = setTimeout(() => this.#wake(), delayMs)
  }

  #wake(): void {
    const now = this.#options.monotonic()
    this.#keep(this.#kept.filter(({ endsAtMs }) => endsAtMs > now))
    const offsetMs = this.#options.now() - now
    const isSet = Math.abs(offsetMs - (this.#kept[0]?.offsetMs ?? offsetMs)) > CLOCK_SKEW_MAX_MS
    if (now >= this.#rotateAtMs || isSet) this.#rotate()
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
  const [nowMs, monotonicMs] = [parts.now(), parts.monotonic()]
  const notBefore = Math.floor(nowMs / 1000) - CLOCK_ROOM_SECONDS
  const stated = {
    public_key: encodeHex(publicKey),
    not_before: notBefore,
    not_after: notBefore + LIFETIME_MS / 1000,
  }
  const signature = parts.account.sign(encryptionKeyDigest(parts.domain, stated))
  const seen = new CountTable(monotonicMs)
  const key: KeptKey = {
    secretKey,
    publicKey,
    statement: { ...stated, signature: `0x${encodeHex(signature)}` },
    endsAtMs: monotonicMs + LIFETIME_MS,
    offsetMs: nowMs - monotonicMs,
    isFull: () => seen.size >= parts.seenMax,
    take: (enc) => {
      // fingerprintKey is secret, so callers cannot find keys with the same fingerprint.
      const fingerprint = createHash('sha256').update(parts.fingerprintKey).update(enc).digest()
      if (seen.find(fingerprint) > 0) return false
      seen.set(fingerprint, 1)
      // Called before the key is full, because calls still arrive until the new key exists.
      if (seen.size * 4 > parts.seenMax * 3) parts.whenNearlyFull(key)
      return true
    },
  }
  return key
}
