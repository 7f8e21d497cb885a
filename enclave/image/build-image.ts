import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { collectBootParts, layOutApplication } from './boot-parts.ts'
import { readInput } from './build-error.ts'
import { readCacheFolder } from './config.ts'
import { packRamdisk } from './cpio.ts'
import { sealImage } from './eif.ts'
import type { FileTree } from './file-tree.ts'
import { type ImageSigner, openImageSigner } from './image-signature.ts'
import {
  countBytes,
  describePackage,
  openDebianPackages,
  openDependencies,
  selectFiles,
} from './open-parts.ts'
import type { ImageOptions } from './options.ts'
import { readPins } from './pins.ts'
import { describeRelease } from './release-payload.ts'
import { type BuiltImage, listImageWarnings, writeImage } from './report.ts'
import { digestSettings, readImageSettings, writeSettings } from './settings.ts'
import { readTrackedSources } from './tracked-files.ts'

export const PROJECT_ROOT = resolve(import.meta.dirname, '../..')

/**
 * Builds the enclave image that `options` describe, into the output folder: `affidavit.eif`, the
 * kernel and the two ramdisks as separate files, `measurements.json` (a release payload) and
 * `report.json`. The same sources, pins and options produce the same bytes on every machine and
 * day. Throws BuildError, SignerError or TreeError. Does NOT prove that the pinned packages are
 * honest: it accepts packages whose digests are in the project.
 */
export async function buildImage(
  options: ImageOptions,
  { root, cache }: { readonly root: string; readonly cache: string } = {
    root: PROJECT_ROOT,
    cache: readCacheFolder(),
  },
): Promise<BuiltImage> {
  const signer = await openSigner(options.signing)
  const [pins, sources, version] = await Promise.all([
    readPins(root),
    readTrackedSources(root),
    readVersion(root),
  ])
  const source = { folder: options.packagesFolder, cache }
  const needed = pins.packages.filter((pinned) => isNeeded(pinned.into, options))
  const packages = await openDebianPackages(needed, source)
  const dependencies = await openDependencies(pins.dependencies, source)
  const settings = writeSettings(
    await readImageSettings(options, { node: dependencies.node, cache }),
  )
  const parts = await collectBootParts(root, options, { kernel: pins.kernel, opened: packages })
  const application = packRamdisk(
    layOutApplication({
      sources: sources.files,
      dependencies: dependencies.tree,
      node: dependencies.node,
      system: selectFiles(packages, 'application'),
      settings,
      init: await readInit(root),
    }),
  )
  const boot = packRamdisk(parts.ramdisk)
  const { eif, measurements } = sealImage({
    ...parts,
    bootRamdisk: boot.bytes,
    applicationRamdisk: application.bytes,
    version,
    commit: sources.commit,
    signer,
  })
  const files = { ...parts.own, kernel: parts.kernel, ...nameInputs('settings', settings) }
  return await writeImage(resolve(options.output), {
    eif,
    kernel: parts.kernel,
    cmdline: parts.cmdline,
    boot,
    application,
    release: describeRelease({
      version,
      sources,
      measurements,
      pins,
      packages: needed,
      files,
      configuration: digestSettings(settings),
    }),
    dependencies: [
      ...dependencies.list,
      ...packages.map(({ pinned, tree }) =>
        describePackage(
          'debian',
          pinned,
          pinned.into.includes('kernel') ? parts.kernelFiles : tree,
        ),
      ),
    ],
    sources: {
      files: sources.files.size,
      bytes: countBytes(sources.files),
      commit: sources.commit,
    },
    warnings: listImageWarnings(options, sources.uncommitted),
  })
}

/**
 * Returns true if the image needs the package. The operator's own kernel replaces Debian's package.
 * Without our init, the boot ramdisk needs no packages.
 */
function isNeeded(into: readonly string[], { kernel, initFile }: ImageOptions): boolean {
  if (into.includes('application')) return true
  return into.includes('kernel') ? kernel === null : initFile === null
}

async function openSigner(signing: ImageOptions['signing']): Promise<ImageSigner | null> {
  if (signing === null) return null
  const [key, certificate] = await Promise.all([
    readInput(signing.keyFile),
    readInput(signing.certificateFile),
  ])
  return openImageSigner({ key, certificate })
}

async function readInit(root: string) {
  const data = await readInput(join(root, 'enclave/image/guest/enclave-init'))
  return { kind: 'file', mode: 0o755, data } as const
}

async function readVersion(root: string): Promise<string> {
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
  return String(version)
}

function nameInputs(prefix: string, tree: FileTree): Readonly<Record<string, Uint8Array>> {
  const files = [...tree].flatMap(([path, entry]) =>
    entry.kind === 'file' ? [[`${prefix}:/${path}`, entry.data] as const] : [],
  )
  return Object.fromEntries(files)
}
