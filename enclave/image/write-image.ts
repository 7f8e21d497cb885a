import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Release } from '../../attestation/release/release.ts'
import type { BuiltImage, ImageReport } from './built-image.ts'
import type { CompressedRamdisk } from './compressed-ramdisk.ts'

/** Everything that a build leaves behind. */
export type FinishedImage = {
  readonly eif: Uint8Array
  readonly kernel: Uint8Array
  readonly cmdline: string
  readonly boot: CompressedRamdisk
  readonly application: CompressedRamdisk
  readonly release: Release
  readonly dependencies: ImageReport['dependencies']
  readonly sources: ImageReport['sources']
  readonly warnings: ImageReport['warnings']
}

/** Writes an image's files into `folder`, over those of an earlier build. Errors of the file system pass through. */
export async function writeImage(folder: string, image: FinishedImage): Promise<BuiltImage> {
  const { release, cmdline, dependencies, sources, warnings } = image
  const report: ImageReport = {
    eifBytes: image.eif.length,
    kernelBytes: image.kernel.length,
    boot: image.boot.size,
    application: image.application.size,
    dependencies,
    sources,
    warnings,
  }
  const built: BuiltImage = {
    folder,
    eifPath: join(folder, 'affidavit.eif'),
    kernelPath: join(folder, 'kernel'),
    cmdline,
    bootRamdiskPath: join(folder, 'boot.cpio.gz'),
    applicationRamdiskPath: join(folder, 'application.cpio.gz'),
    measurements: {
      0: release.measurements.PCR0,
      1: release.measurements.PCR1,
      2: release.measurements.PCR2,
    },
    release,
    report,
  }
  await mkdir(folder, { recursive: true })
  await Promise.all([
    writeFile(built.eifPath, image.eif),
    writeFile(built.kernelPath, image.kernel),
    writeFile(built.bootRamdiskPath, image.boot.bytes),
    writeFile(built.applicationRamdiskPath, image.application.bytes),
    writeFile(join(folder, 'measurements.json'), writeJson(release)),
    writeFile(join(folder, 'report.json'), writeJson({ ...report, cmdline })),
  ])
  return built
}

function writeJson(value: object): string {
  return `${JSON.stringify(value, null, 2)}\n`
}
