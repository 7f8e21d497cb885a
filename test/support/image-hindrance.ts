import { BuildError } from '#enclave/image/build-error.ts'
import { PROJECT_ROOT } from '#enclave/image/build-image.ts'
import { readCacheFolder } from '#enclave/image/config.ts'
import { openDebianPackages, openDependencies } from '#enclave/image/open-parts.ts'
import { readPins } from '#enclave/image/pins.ts'

/**
 * Null when every package of the image is there or can be fetched; else why the image cannot be
 * built here.
 */
export async function findImageHindrance(): Promise<string | null> {
  try {
    const [pins, source] = [
      await readPins(PROJECT_ROOT),
      { folder: null, cache: readCacheFolder() },
    ]
    await openDebianPackages(pins.packages, source)
    await openDependencies(pins.dependencies, source)
    return null
  } catch (error) {
    const isMissing =
      error instanceof BuildError && /^(missing_tool|package_unavailable)$/.test(error.code)
    if (isMissing) return error.message
    throw error
  }
}
