import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { encodeHex } from '../../attestation/bytes.ts'
import { extendZero } from '../../attestation/eif/registers.ts'
import { parseSigningCertificate } from '../../attestation/eif/signing-certificate.ts'
import type { ReleaseMeasurements } from '../../attestation/release/release.ts'
import { encodeEif, measureParts } from './eif.ts'
import { writeMetadata } from './image-metadata.ts'
import { type ImageSigner, signImage } from './image-signature.ts'

/** What goes into an image file, packed. */
export type ImageContents = {
  readonly kernel: Uint8Array
  readonly cmdline: string
  readonly kernelVersion: string
  readonly bootRamdisk: Uint8Array
  readonly applicationRamdisk: Uint8Array
  readonly version: string
  readonly commit: string
  readonly signer: ImageSigner | null
}

/** An image file, and what an enclave that runs it will show. */
export type SealedImage = { readonly eif: Uint8Array; readonly measurements: ReleaseMeasurements }

/** Measures the contents, signs them when there is a signer, and gives the image file. */
export function sealImage(contents: ImageContents): SealedImage {
  const { kernel, cmdline, bootRamdisk, applicationRamdisk, signer } = contents
  const parts = { kernel, cmdline, ramdisks: [bootRamdisk, applicationRamdisk] }
  const { pcr0, pcr1, pcr2 } = measureParts(parts)
  const signature = signer === null ? null : signImage(signer, pcr0)
  const measurements = { PCR0: encodeHex(pcr0), PCR1: encodeHex(pcr1), PCR2: encodeHex(pcr2) }
  return {
    eif: encodeEif({ ...parts, metadata: writeMetadata(contents), signature }),
    measurements: signer === null ? measurements : { ...measurements, PCR8: measureSigner(signer) },
  }
}

function measureSigner({ certificate }: ImageSigner): string {
  const digest = createHash('sha384').update(parseSigningCertificate(certificate).der).digest()
  return encodeHex(extendZero(digest, { sha384: () => createHash('sha384'), crc32 }))
}
