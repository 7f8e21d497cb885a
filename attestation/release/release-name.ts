import type { Release } from './release.ts'

/** By what a release is known: version and commit. */
export type ReleaseName = Pick<Release, 'version' | 'git_commit'>

/** The name of a release, without the rest. */
export function releaseName({ version, git_commit }: Release): ReleaseName {
  return { version, git_commit }
}

/** A release in a few words. */
export function nameRelease({ version, git_commit }: ReleaseName): string {
  return `release ${version} (commit ${git_commit})`
}
