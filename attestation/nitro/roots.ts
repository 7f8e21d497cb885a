import { decodeBase64, decodeHex, sha256 } from '../bytes.ts'
import { FormatError } from '../errors.ts'

/**
 * SHA-256 of the DER of the AWS Nitro Enclaves root certificate (aws partition), which every document of that partition
 * carries as cabundle[0]. Source: AWS, "Verifying the root of trust"; recheck by unpacking AWS_NitroEnclaves_Root-G1.zip
 * (whose own SHA-256 is 8cf60e2b..., which is not this value), converting root.pem to DER and hashing that.
 */
export const AWS_ROOT_SHA256: Uint8Array = decodeHex(
  '641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b',
)

/**
 * Gives the SHA-256 fingerprints of the certificates in a file: one DER certificate, or PEM with one or more blocks
 * (RFC 7468). They are pins: nothing about the certificates is checked until a document is verified against them.
 * Throws FormatError `invalid_root` or `invalid_base64`.
 */
export function parseRoots(file: Uint8Array): readonly Uint8Array[] {
  if (file[0] === DER_SEQUENCE) return [sha256(file)]
  const text = new TextDecoder().decode(file)
  const blocks = [...text.matchAll(/-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----/g)]
  if (blocks.length === 0) throw new FormatError('invalid_root', 'expected a certificate in DER or PEM')
  return blocks.map(([, base64 = '']) => sha256(decodeBase64(base64.replaceAll(/\s/g, ''))))
}

const DER_SEQUENCE = 0x30
