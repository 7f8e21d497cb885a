import { readProviderFixture } from './provider-fixtures.ts'

/** The text of one fixture of providers. */
export function readProviderText(file: string): string {
  return Buffer.from(readProviderFixture(file)).toString()
}

/** The certificates of a PEM fixture, DER, in its order. */
export function readProviderPem(file: string): readonly Uint8Array<ArrayBuffer>[] {
  const blocks = readProviderText(file).matchAll(
    /-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----/g,
  )
  return [...blocks].map(([, base64 = '']) => new Uint8Array(Buffer.from(base64, 'base64')))
}
