import { FormatError } from '../../attestation/errors.ts'
import { checkImages } from '../images/checked-images.ts'
import { type AskedProbe, BROKEN_OFF } from './asked-probe.ts'
import { DispatchError } from './dispatcher.ts'
import type { ImageDesk } from './image-desk.ts'
import type { ProbeOutcome } from './node-state.ts'

/**
 * The question of a probe: the smallest image that callers can ask for. The public client draws one
 * of its own size all the same.
 */
export const IMAGE_PROBE = { prompt: 'A red circle on white.', image: null, n: 1, size: '256x256' } as const

/**
 * Probes a DIFFUSION node with one small image. Null when the probe was broken off, or there was no memory for its answer: it shows
 * nothing. The image has to be one; what it shows is not looked at.
 */
export async function probeImages(
  desk: ImageDesk,
  { limits, ...start }: AskedProbe,
): Promise<ProbeOutcome | null> {
  const run = desk.start({ ...start, request: IMAGE_PROBE, isProbe: true })
  if (run === null) return null
  try {
    const images = await run.answer
    const tookMs = run.options.now() - run.startedAtMs
    await checkImages(images, { n: IMAGE_PROBE.n, size: null })
    return tookMs > limits.probeImageMs ? 'slow' : 'healthy'
  } catch (error) {
    if (error instanceof DispatchError) return BROKEN_OFF.has(error.code) ? null : 'failed'
    return error instanceof FormatError ? 'failed' : null
  }
}
