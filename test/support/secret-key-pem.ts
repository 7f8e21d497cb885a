import { createPrivateKey } from 'node:crypto'

/** DER of an Ed25519 private key (RFC 8410 section 7) up to the secret's 32 bytes. */
const PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')

/** A secret of 32 bytes as OpenSSL keeps an Ed25519 private key: PEM, PKCS #8. */
export function pemOf(secretKey: Uint8Array): string {
  const key = createPrivateKey({
    key: Buffer.concat([PREFIX, secretKey]),
    format: 'der',
    type: 'pkcs8',
  })
  return String(key.export({ format: 'pem', type: 'pkcs8' }))
}
