import { generateKeyPairSync } from 'node:crypto'
import { expect, it } from 'vitest'
import {
  parseImageSignature,
  parseSigningCertificate,
  verifyImageSignature,
} from '#attestation/eif/signature.ts'
import { CERTIFICATE_PROFILES, issueCertificate } from '#src/local/nsm/certificate.ts'
import { encodeName } from '#src/local/x509/certificate-builder.ts'
import {
  ascii,
  encodePem,
  encodeSignatureSection,
  makeSigner,
  signRegister,
} from './image-builder.ts'

const signer = makeSigner('P-384')
const text = Buffer.from(signer.pem).toString('latin1')
const malformed = expect.objectContaining({ name: 'EifError', code: 'certificate_malformed' })

it('parseSigningCertificate gives the DER, the key and its curve', () => {
  const { der, publicKey, curve } = parseSigningCertificate(signer.pem)
  expect(der).toEqual(new Uint8Array(signer.der))
  expect(Buffer.from(publicKey).toString('hex')).toMatch(/^3076301006072a8648ce3d0201/)
  expect(curve).toEqual({ namedCurve: 'P-384', hash: 'SHA-384', name: 'ES384', identifier: -35 })
})

it.each([
  ['Windows line ends', text.replaceAll('\n', '\r\n')],
  ['text around it', `Bag Attributes\n${text}more`],
  [
    'a second certificate after it',
    `${text}${Buffer.from(makeSigner('P-256').pem).toString('latin1')}`,
  ],
  [
    'one long line',
    text
      .replace(/\n(?!-)/g, '')
      .replace('-----BEGIN CERTIFICATE-----', '-----BEGIN CERTIFICATE-----\n'),
  ],
])('parseSigningCertificate reads the first certificate of PEM with %s', (_, pem) => {
  expect(parseSigningCertificate(ascii(pem)).der).toEqual(new Uint8Array(signer.der))
})

it.each<[string, Uint8Array]>([
  ['DER instead of PEM', signer.der],
  ['no end', ascii(text.slice(0, -10))],
  ['a character that is not base64', ascii(text.replace(/[A-Za-z]\n/, '!\n'))],
  ['base64 of nothing', ascii('-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----')],
  ['a byte after the certificate', encodePem(Buffer.concat([signer.der, Uint8Array.of(0)]))],
  ['a sequence that is no certificate', encodePem(Buffer.from('3003020101', 'hex'))],
])('parseSigningCertificate refuses what is no PEM certificate: %s', (_, pem) => {
  expect(() => parseSigningCertificate(pem)).toThrow(malformed)
})

it.each([
  ['RSA', generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey],
  ['Ed25519', generateKeyPairSync('ed25519').publicKey],
  ['an EC key on secp256k1', generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).publicKey],
])(
  'parseSigningCertificate refuses a key that AWS does not sign images with: %s',
  (_, publicKey) => {
    const name = encodeName(['CN', 'signer'])
    const der = issueCertificate(
      {
        profile: CERTIFICATE_PROFILES.leaf,
        subject: name,
        publicKey,
        serial: Uint8Array.of(1),
        notBefore: 0,
        notAfter: 1,
        crlUri: '',
      },
      { name, keyId: new Uint8Array(20), privateKey: signer.privateKey },
    )
    expect(() => parseSigningCertificate(encodePem(der))).toThrow(malformed)
  },
)

it('a certificate with a point off its curve is parsed, and the verification refuses it', async () => {
  const der = Buffer.from(signer.der)
  const point = Buffer.from(parseSigningCertificate(signer.pem).publicKey).subarray(-97)
  der.fill(0x11, der.indexOf(point) + 1, der.indexOf(point) + 97)
  const pcr0 = new Uint8Array(48)
  const image = parseImageSignature(
    encodeSignatureSection(encodePem(der), signRegister(signer, pcr0)),
  )
  await expect(verifyImageSignature(image, pcr0)).rejects.toMatchObject({
    code: 'certificate_malformed',
  })
})
