import type { ReleaseName } from '#attestation/release/release-name.ts'
import { OutsideText } from '../kit/outside-text.tsx'
import { Hex } from '../kit/values.tsx'

/** Shows the version and the commit of the sources. */
export function ReleaseLabel({
  release: { version, git_commit: commit },
}: {
  readonly release: ReleaseName
}) {
  return (
    <>
      Release <OutsideText text={version} isOneLine={true} shownMax={64} />, commit{' '}
      <Hex value={commit} />
    </>
  )
}
