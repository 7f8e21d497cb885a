import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { bundledCas, parseCas } from '#enclave/providers/trusted-cas.ts'
import { createAuthority } from '../../support/certificates.ts'

describe('trusted CAs', () => {
  it('the trusted CAs are those of Node.js by default, digested over their PEM text', () => {
    const { pem, sha256 } = bundledCas()
    expect(pem.match(/BEGIN CERTIFICATE/g)?.length).toBeGreaterThan(100)
    expect(sha256).toBe(createHash('sha256').update(pem).digest('hex'))
    expect(parseCas(Buffer.from(pem)).sha256).toBe(sha256)
  })

  it('the trusted CAs are read from PEM, whatever stands around the certificates', async () => {
    const { certificate } = await createAuthority()
    const text = `# mine\n${certificate}\n${certificate}`
    expect(parseCas(Buffer.from(text))).toEqual({
      pem: text,
      sha256: createHash('sha256').update(text).digest('hex'),
    })
  })

  it.each([
    ['nothing', ''],
    ['no PEM', 'certificates'],
    [
      'a certificate that cannot be read',
      '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n',
    ],
    ['a key', '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n'],
  ])('parseCas refuses a file with %s', (_, text) => {
    expect(() => parseCas(Buffer.from(text))).toThrow(
      expect.objectContaining({ code: 'invalid_ca_file' }),
    )
  })

  it('parseCas refuses a file in which one certificate among others cannot be read', async () => {
    const { certificate } = await createAuthority()
    const broken = `${certificate}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`
    expect(() => parseCas(Buffer.from(broken))).toThrow('number 2')
    expect(() =>
      parseCas(Buffer.from(certificate.replace('-----END CERTIFICATE-----', ''))),
    ).toThrow('nothing else')
  })
})
