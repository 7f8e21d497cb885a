import { readFileSync } from 'node:fs'
import { Decoder } from 'cbor-x'
import { Certificate } from 'pkijs'
import { describe, expect, it } from 'vitest'
import { CERTIFICATE_ROLES } from '#src/local/nsm/certificate.ts'
import { createCertificateChain } from '#src/local/nsm/certificate-chain.ts'
import { openDevelopmentRoot } from '#src/local/nsm/development-root.ts'

/** Certificates of a document that AWS signed on 2026-08-03, root first. */
const aws = readChain(
  readFileSync(new URL('../../../vectors/nsm/aws-2026-08-03.bin', import.meta.url)),
)
const NOW_MS = Date.parse('2026-11-21T08:00:00Z')
const IDENTITY = {
  instanceId: 'i-018e0c27541e1f15a',
  enclaveId: Buffer.from('019fc8255f07a185', 'hex'),
}
const chain = createCertificateChain(await openDevelopmentRoot(null, NOW_MS), IDENTITY)(NOW_MS)
const ours = [...chain.cabundle, chain.certificate].map((der) =>
  Certificate.fromBER(new Uint8Array(der)),
)
const roles = CERTIFICATE_ROLES.map((role, index) => ({ role, index }))

function readChain(document: Uint8Array): readonly Certificate[] {
  const decoder = new Decoder({ mapsAsObjects: true })
  const payload = decoder.decode(decoder.decode(document)[2])
  return [...payload.cabundle, payload.certificate].map((der: Uint8Array) =>
    Certificate.fromBER(new Uint8Array(der)),
  )
}

function at(certificates: readonly Certificate[], index: number): Certificate {
  const certificate = certificates[index]
  if (certificate === undefined) throw new Error(`no certificate ${index}`)
  return certificate
}

const hex = (bytes: ArrayBuffer) => Buffer.from(bytes).toString('hex')
const VALUE_OIDS = new Set(['2.5.29.19', '2.5.29.15'])

/**
 * Extensions in their order; the values of basic constraints and key usage too, the others'
 * lengths.
 */
function describeExtensions(certificate: Certificate) {
  return (certificate.extensions ?? []).map((extension) => ({
    oid: extension.extnID,
    critical: extension.critical,
    value: VALUE_OIDS.has(extension.extnID) ? hex(extension.extnValue.valueBlock.valueHex) : '',
  }))
}

const commonName = (certificate: Certificate) =>
  String(
    certificate.subject.typesAndValues.find(({ type }) => type === '2.5.4.3')?.value.valueBlock
      .value,
  )

describe.each(roles)('the $role certificate', ({ index }) => {
  it('a certificate of the chain has the extensions of the real one, in the same order, equally critical', () => {
    expect(describeExtensions(at(ours, index))).toEqual(describeExtensions(at(aws, index)))
  })

  it('a certificate of the chain has the same algorithms, version, and attribute and string types in its names', () => {
    const shape = (certificate: Certificate) => ({
      version: certificate.version,
      outer: certificate.signatureAlgorithm.toJSON(),
      inner: certificate.signature.toJSON(),
      key: certificate.subjectPublicKeyInfo.algorithm.toJSON(),
      names: [certificate.issuer, certificate.subject].map((name) =>
        name.typesAndValues.map(({ type, value }) => [type, value.constructor.name]),
      ),
    })
    expect(shape(at(ours, index))).toEqual(shape(at(aws, index)))
  })
})

describe('names', () => {
  it('names in certificates have the forms of AWS, in our own domain', () => {
    expect(ours.slice(1).map(commonName)).toEqual([
      expect.stringMatching(/^[0-9a-f]{16}\.dev-local-1\.affidavit\.nitro-enclaves$/),
      expect.stringMatching(/^[0-9a-f]{16}\.zonal\.dev-local-1\.affidavit\.nitro-enclaves$/),
      'i-018e0c27541e1f15a.dev-local-1.affidavit.nitro-enclaves',
      'i-018e0c27541e1f15a-enc019fc8255f07a185.dev-local-1.affidavit',
    ])
  })

  it('names in certificates never claim to be Amazon', () => {
    for (const certificate of ours)
      for (const { value } of certificate.subject.typesAndValues)
        expect(String(value.valueBlock.value)).not.toMatch(/amazon|aws/i)
  })
})

describe('serial numbers', () => {
  it('serial numbers of certificates are positive and at most 20 bytes (RFC 5280, 4.1.2.2)', () => {
    for (const certificate of ours) {
      const bytes = certificate.serialNumber.valueBlock.valueHexView
      expect(bytes.length).toBeLessThanOrEqual(20)
      expect(bytes[0] ?? 0xff).toBeLessThan(0x80)
    }
  })
})

describe('key identifiers', () => {
  const subjectKeyId = (certificate: Certificate) => identifierIn(certificate, '2.5.29.14')
  const identifierIn = (certificate: Certificate, oid: string) => {
    const extension = certificate.extensions?.find(({ extnID }) => extnID === oid)
    return hex(extension?.extnValue.valueBlock.valueHex ?? new ArrayBuffer(0)).slice(-40)
  }

  it('key identifiers chain each certificate to the one above', () => {
    for (const index of [1, 2, 3])
      expect(identifierIn(at(ours, index), '2.5.29.35')).toBe(subjectKeyId(at(ours, index - 1)))
  })
})
