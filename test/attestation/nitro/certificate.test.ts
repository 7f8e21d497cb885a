import { X509Certificate } from 'node:crypto'
import { Certificate as PkijsCertificate } from 'pkijs'
import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { parseCertificate } from '#attestation/nitro/certificate.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { standardChain } from '../../support/nitro-builder/document-builder.ts'
import { NITRO_FIXTURES, nitroFixtures, readFixture } from '../../support/nitro-fixtures.ts'

/** pkijs reads leniently and shares no code with this: where both read, they must read the same. */
function expectSameReading(der: Uint8Array<ArrayBuffer>): void {
  const ours = parseCertificate(der, 'certificate')
  const theirs = PkijsCertificate.fromBER(der)
  expect(encodeHex(ours.serial)).toBe(encodeHex(theirs.serialNumber.valueBlock.valueHexView))
  expect(encodeHex(ours.issuer.encoding)).toBe(
    encodeHex(new Uint8Array(theirs.issuer.toSchema().toBER())),
  )
  expect(encodeHex(ours.subject.encoding)).toBe(
    encodeHex(new Uint8Array(theirs.subject.toSchema().toBER())),
  )
  expect(ours.notBeforeMs).toBe(theirs.notBefore.value.getTime())
  expect(ours.notAfterMs).toBe(theirs.notAfter.value.getTime())
  expect(encodeHex(ours.point)).toBe(
    encodeHex(theirs.subjectPublicKeyInfo.subjectPublicKey.valueBlock.valueHexView),
  )
  expect(encodeHex(ours.signed)).toBe(encodeHex(theirs.tbsView))
  expect(encodeHex(ours.signature)).toBe(encodeHex(theirs.signatureValue.valueBlock.valueHexView))
  const constraints = theirs.extensions?.find(({ extnID }) => extnID === '2.5.29.19')
  expect(ours.basicConstraints?.critical).toBe(constraints?.critical)
  expect(ours.basicConstraints?.ca).toBe(constraints?.parsedValue?.cA)
  const pathLength: unknown = constraints?.parsedValue?.pathLenConstraint
  expect(ours.basicConstraints?.pathLength ?? undefined).toBe(pathLength)
}

it('a certificate of the builder is read as pkijs reads it', () => {
  for (const der of [...standardChain.cabundle, standardChain.certificate]) expectSameReading(der)
})

it.runIf(NITRO_FIXTURES.isMet)(
  NITRO_FIXTURES.title('a certificate of AWS is read as pkijs reads it'),
  () => {
    for (const fixture of nitroFixtures) {
      const { cabundle, certificate } = decodeAttestationPayload(readFixture(fixture))
      for (const der of [...cabundle, certificate]) expectSameReading(der)
    }
  },
)

it('a certificate of the builder is read as OpenSSL reads it', () => {
  for (const der of [...standardChain.cabundle, standardChain.certificate]) {
    const ours = parseCertificate(der, 'certificate')
    const theirs = new X509Certificate(der)
    expect(encodeHex(ours.sha256)).toBe(theirs.fingerprint256.replaceAll(':', '').toLowerCase())
    expect(ours.subject.text.split(', ').join('\n')).toBe(theirs.subject)
    expect(ours.keyUsage?.keyCertSign).toBe(theirs.ca)
  }
})
