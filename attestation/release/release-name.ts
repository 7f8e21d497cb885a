import type { Release } from './release.ts'

export type ReleaseName = Pick<Release, 'version' | 'git_commit'>

export function releaseName({ version, git_commit }: Release): ReleaseName {
  return { version, git_commit }
}

/** A short name for messages. */
export function nameRelease({ version, git_commit }: ReleaseName): string {
  return `release ${version} (commit ${git_commit})`
}
