import { Wallet } from 'ethers'

/** An account other than the notary's. */
export const STRANGER = new Wallet(`0x${'17'.repeat(32)}`)

/** The public key of that account, 65 bytes. */
export function foreignKey(): Uint8Array {
  return Buffer.from(STRANGER.signingKey.publicKey.slice(2), 'hex')
}

/** The key with its last byte changed: it is not a point of the curve. */
export function offCurve(publicKey: string): string {
  const last = publicKey.endsWith('00') ? '01' : '00'
  return `${publicKey.slice(0, -2)}${last}`
}

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

/** The other valid signature of the same key and message: high s. */
export function malleated(signature: string): string {
  const s = (ORDER - BigInt(`0x${signature.slice(66, 130)}`)).toString(16).padStart(64, '0')
  return `${signature.slice(0, 66)}${s}${signature.endsWith('1b') ? '1c' : '1b'}`
}
