import type { Release } from './release.ts'

/** The members that identify a release: version and commit. */
export type ReleaseName = Pick<Release, 'version' | 'git_commit'>

/** The members of a release that identify it. */
export function releaseName({ version, git_commit }: Release): ReleaseName {
  return { version, git_commit }
}

/** A short text that names a release. */
export function nameRelease({ version, git_commit }: ReleaseName): string {
  return `release ${version} (commit ${git_commit})`
}
