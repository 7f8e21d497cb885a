import { X509Certificate } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { createCertificateChain, type SigningChain } from '#src/local/nsm/certificate-chain.ts'
import { openDevelopmentRoot } from '#src/local/nsm/development-root.ts'

const START_MS = Date.parse('2026-11-21T08:00:00.500Z')
const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS
const IDENTITY = {
  instanceId: 'i-018e0c27541e1f15a',
  enclaveId: Buffer.from('019fc8255f07a185', 'hex'),
}

const root = await openDevelopmentRoot(null, START_MS)
const read = (chain: SigningChain) =>
  [...chain.cabundle, chain.certificate].map((der) => new X509Certificate(der))
const validity = (certificate: X509Certificate) => ({
  from: certificate.validFromDate.getTime(),
  to: certificate.validToDate.getTime(),
})

describe('createCertificateChain', () => {
  it('createCertificateChain gives five certificates, each signed by the one before it', () => {
    const certificates = read(createCertificateChain(root, IDENTITY)(START_MS))
    expect(certificates.length).toBe(5)
    for (const [index, certificate] of certificates.entries()) {
      const issuer = certificates[Math.max(0, index - 1)]
      if (issuer === undefined) throw new Error('no issuer')
      expect(certificate.verify(issuer.publicKey)).toBe(true)
      expect(certificate.checkIssued(issuer)).toBe(true)
    }
  })

  it('a certificate chain keeps certificates until they are due', () => {
    const chainAt = createCertificateChain(root, IDENTITY)
    const first = chainAt(START_MS)
    expect(chainAt(START_MS + 89 * MINUTE_MS)).toEqual(first)
    const second = chainAt(START_MS + 91 * MINUTE_MS)
    expect(second.certificate).not.toEqual(first.certificate)
    expect(second.cabundle).toEqual(first.cabundle)
  })

  it('a certificate chain reissues what was made in the future when the clock is turned back', () => {
    const chainAt = createCertificateChain(root, IDENTITY)
    chainAt(START_MS + 10 * DAY_MS)
    for (const certificate of read(chainAt(START_MS)))
      expect(validity(certificate).from).toBeLessThanOrEqual(START_MS)
  })

  it('a certificate chain is valid at every moment of 30 days, nested, with half of the leaf ahead', () => {
    const chainAt = createCertificateChain(root, IDENTITY)
    for (let now = START_MS; now < START_MS + 30 * DAY_MS; now += 7.1 * HOUR_MS) {
      const spans = read(chainAt(now)).map(validity)
      const leaf = spans.at(-1)
      if (leaf === undefined) throw new Error('no leaf')
      expect(leaf.to - now).toBeGreaterThanOrEqual(1.5 * HOUR_MS - 1000)
      for (const span of spans) {
        expect(span.from).toBeLessThanOrEqual(now)
        expect(span.to).toBeGreaterThanOrEqual(leaf.to)
      }
    }
  })

  it('createCertificateChain refuses to sign under a root that expires before what it signs', () => {
    const chainAt = createCertificateChain(root, IDENTITY)
    expect(() => chainAt(root.notAfter * 1000 - 19 * DAY_MS)).toThrow(
      expect.objectContaining({ code: 'invalid_root' }),
    )
  })
})
