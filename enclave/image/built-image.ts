import type { Release } from '../../attestation/release/release.ts'

/** An image that was built. */
export type BuiltImage = {
  /** Folder that holds all of the files. */
  readonly folder: string
  readonly eifPath: string
  readonly kernelPath: string
  /** The kernel's command line, as the image has it. */
  readonly cmdline: string
  readonly bootRamdiskPath: string
  readonly applicationRamdiskPath: string
  /** SHA-384 as hex: PCR0, 1 and 2. */
  readonly measurements: { readonly 0: string; readonly 1: string; readonly 2: string }
  /** The release payload that `measurements.json` holds, ready to be signed. */
  readonly release: Release
  readonly report: ImageReport
}

/** What is in an image, and how large it is. */
export type ImageReport = {
  readonly eifBytes: number
  readonly kernelBytes: number
  readonly boot: RamdiskSize
  readonly application: RamdiskSize
  /** The production dependencies: Node.js, npm's and Debian's, each with the bytes that were taken. */
  readonly dependencies: readonly Dependency[]
  readonly sources: { readonly files: number; readonly bytes: number; readonly commit: string }
  /** What keeps others from rebuilding this image, and what it is not fit for. */
  readonly warnings: readonly string[]
}

export type RamdiskSize = { readonly files: number; readonly bytes: number; readonly compressedBytes: number }

export type Dependency = {
  readonly kind: 'runtime' | 'npm' | 'debian'
  readonly name: string
  readonly version: string
  readonly why: string
  readonly bytes: number
}
