import { homedir } from 'node:os'
import { join } from 'node:path'

/**
 * IMAGE_CACHE, XDG_CACHE_HOME: the builder's folder for fetched packages. Default:
 * `affidavit-image` in the user's cache folder.
 */
export function readCacheFolder(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): string {
  if (environment.IMAGE_CACHE) return environment.IMAGE_CACHE
  return join(environment.XDG_CACHE_HOME || join(homedir(), '.cache'), 'affidavit-image')
}
