/**
 * Gives the metadata section of an image: the members that AWS's builder writes, without its clock, so that the same image
 * always has the same bytes. No measurement covers it: what counts is in `measurements.json`.
 */
export function writeMetadata(image: {
  readonly version: string
  readonly commit: string
  readonly kernelVersion: string
}): string {
  return JSON.stringify({
    ImageName: 'affidavit-enclave',
    ImageVersion: image.version,
    BuildMetadata: {
      BuildTime: '1970-01-01T00:00:00+00:00',
      BuildTool: 'affidavit npm run image',
      BuildToolVersion: image.version,
      OperatingSystem: 'Debian GNU/Linux',
      KernelVersion: image.kernelVersion,
    },
    DockerInfo: {},
    CustomMetadata: { GitCommit: image.commit },
  })
}
