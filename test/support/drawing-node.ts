import { pngOf } from './image-files.ts'
import type { ScriptedNode, ScriptedNodeOptions } from './scripted-node.ts'

/** An image frame as a node gets it (facts of the public client, Images). */
export type DrawFrame = {
  readonly request_id: string
  readonly prompt: string
  readonly image: string | null
  readonly n: number
  readonly size: string
}

/** What a scripted node does with a call for images. */
export type DrawScript = (frame: DrawFrame, node: ScriptedNode) => Promise<void> | void

/**
 * Makes a scripted node that draws: it announces that when it dials, and runs the script for each
 * image frame.
 */
export function drawing(script: DrawScript): Pick<ScriptedNodeOptions, 'modelType' | 'answer'> {
  return {
    modelType: 'DIFFUSION',
    answer: (frame, node) => script(frame as unknown as DrawFrame, node),
  }
}

/** The frames for images that a node got. */
export function framesFor({ calls }: ScriptedNode): readonly DrawFrame[] {
  return calls as unknown as readonly DrawFrame[]
}

/**
 * Answers as the public client does, with the requested images: squares of one colour, each of
 * another.
 */
export const drawAsAsked: DrawScript = ({ request_id, n, size }, node) =>
  node.send({ request_id, images: squares(n, Number.parseInt(size, 10)), error: null })

/** `n` PNGs in base64. */
export function squares(n: number, edge: number): readonly string[] {
  return Array.from({ length: n }, (_, index) =>
    pngOf(edge, [index * 20, 90, 160]).toString('base64'),
  )
}

/** Answers with these images; they may have any form. */
export function drawWith(images: unknown, error: unknown = null): DrawScript {
  return ({ request_id }, node) => node.send({ request_id, images, error })
}

/** Never answers. */
export const drawNothing: DrawScript = () => {}
