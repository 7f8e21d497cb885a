import { secp256k1 } from '@noble/curves/secp256k1.js'
import { addressOf } from '../attestation/account.ts'

/** The enclave's signing account, the notary. The key stays inside: nothing here gives it out. */
export type Account = {
  /** 65 bytes, uncompressed. */
  readonly publicKey: Uint8Array
  /** Its address: 0x, lower case. The log's id. */
  readonly notary: string
  /** Signs a digest of 32 bytes: r||s||v, 65 bytes, low s (EIP-2), v 27 or 28, deterministic (RFC 6979). */
  readonly sign: (digest: Uint8Array) => Uint8Array
}

/**
 * Makes a new account from `random` (gives so many bytes of the security module's randomness). It lives as long as
 * the process. Throws what `random` throws, and when 8 draws in a row are no private key (one in 2^127 is none, so the
 * source is broken).
 */
export async function makeAccount(random: (length: number) => Promise<Uint8Array>): Promise<Account> {
  const secretKey = await drawSecretKey(random)
  const publicKey = secp256k1.getPublicKey(secretKey, false)
  // Signing is the dearest step of a completion. A table larger than the library's own saves a sixth of it, for 0.2 s at
  // boot; still larger ones cost more time at boot than they save.
  secp256k1.Point.BASE.precompute(BASE_WINDOW_BITS, false)
  return { publicKey, notary: addressOf(publicKey), sign: (digest) => signDigest(digest, secretKey) }
}

const BASE_WINDOW_BITS = 8
const DRAWS_MAX = 8

async function drawSecretKey(random: (length: number) => Promise<Uint8Array>): Promise<Uint8Array> {
  for (let draw = 0; draw < DRAWS_MAX; draw++) {
    const bytes = await random(32)
    if (secp256k1.utils.isValidSecretKey(bytes)) return bytes
  }
  throw new Error(
    `expected a private key in ${DRAWS_MAX} draws of 32 bytes; the source of randomness is broken`,
  )
}

function signDigest(digest: Uint8Array, secretKey: Uint8Array): Uint8Array {
  // `recovered` is the recovery bit before r||s; Ethereum has it last, and counts from 27.
  const [recovery = 0, ...rest] = secp256k1.sign(digest, secretKey, {
    prehash: false,
    lowS: true,
    format: 'recovered',
  })
  return Uint8Array.from([...rest, 27 + recovery])
}
