import { isPrivate, pointFromScalar, signRecoverable } from 'tiny-secp256k1'
import { addressOf } from '#attestation/account.ts'

/** The enclave's signing account, the notary. The key never leaves this closure. */
export type NotaryAccount = {
  /** 65 bytes, uncompressed. */
  readonly publicKey: Uint8Array
  /** The account's address (0x, lower case), which identifies the log. */
  readonly notary: string
  /**
   * Signs a digest of 32 bytes: r||s||v, 65 bytes, low s (EIP-2), v 27 or 28, deterministic (RFC
   * 6979).
   */
  readonly sign: (digest: Uint8Array) => Uint8Array
}

/**
 * Makes a new account, which lives as long as the process. `random` returns bytes from the security
 * module, and its errors are thrown. Throws if 8 values from `random` are not private keys: this is
 * true of one value in 2^127, so `random` is broken.
 */
export async function makeAccount(
  random: (length: number) => Promise<Uint8Array>,
): Promise<NotaryAccount> {
  const secretKey = await drawSecretKey(random)
  const publicKey = pointFromScalar(secretKey, false)
  if (publicKey === null) throw new Error('expected a public key of a valid private key')
  return {
    publicKey,
    notary: addressOf(publicKey),
    sign: (digest) => signDigest(digest, secretKey),
  }
}

const DRAWS_MAX = 8

async function drawSecretKey(random: (length: number) => Promise<Uint8Array>): Promise<Uint8Array> {
  for (let draw = 0; draw < DRAWS_MAX; draw++) {
    const bytes = await random(32)
    if (isPrivate(bytes)) return bytes
  }
  throw new Error(
    `expected a private key in ${DRAWS_MAX} draws of 32 bytes; the source of randomness is broken`,
  )
}

/**
 * Uses Bitcoin Core's libsecp256k1, as WebAssembly: constant time, and a fifth of the time of plain
 * JavaScript. Signing is the most expensive step of a completion (test/bench/signing.ts).
 */
function signDigest(digest: Uint8Array, secretKey: Uint8Array): Uint8Array {
  const { signature, recoveryId } = signRecoverable(digest, secretKey)
  const signed = new Uint8Array(65)
  signed.set(signature)
  // Ethereum puts the recovery bit last, and counts from 27.
  signed[64] = 27 + recoveryId
  return signed
}
