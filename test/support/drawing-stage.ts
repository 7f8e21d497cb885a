import { checkImages } from '#src/images/checked-images.ts'
import type { MadeImage } from '#src/images/image-source.ts'
import type { HubOptions } from '#src/nodes/hub/hub.ts'
import type { ImageRequest } from '#src/nodes/protocol/frames.ts'
import type { NodeLimits } from '#src/nodes/runs/limits.ts'
import { type DrawScript, drawAsAsked, drawing } from './drawing-node.ts'
import { TEST_ACCOUNT } from './memory-registry.ts'
import { type NodesStage, openNodesStage } from './nodes-stage.ts'
import type { ScriptedNode } from './scripted-node.ts'

export const IMAGE_MODEL = 'image-model'

/** A stage of nodes that draw. */
export type DrawingStage = NodesStage & {
  /** Connects a node that draws as the script says. */
  connectDrawer(
    script?: DrawScript,
    node?: Omit<NonNullable<Parameters<NodesStage['connect']>[0]>, 'answer' | 'modelType'>,
  ): Promise<ScriptedNode>
  /** Asks for images; by default for one of 256 pixels. */
  draw(
    request?: Partial<ImageRequest>,
    call?: { readonly signal?: AbortSignal; readonly model?: string },
  ): Promise<readonly MadeImage[]>
}

/** Opens a stage on which images come within a second or so, or not at all. */
export async function openDrawingStage(
  limits: Partial<NodeLimits> = {},
  options: Partial<HubOptions> = {},
): Promise<DrawingStage> {
  const stage = await openNodesStage({ imageMs: 1_500, ...limits }, options)
  return {
    ...stage,
    connectDrawer: (script = drawAsAsked, node = {}) =>
      stage.connect({ model: IMAGE_MODEL, ...node, ...drawing(script) }),
    draw(request = {}, { signal = new AbortController().signal, model = IMAGE_MODEL } = {}) {
      const asked = { prompt: 'a fox', image: null, n: 1, size: '256x256', ...request }
      return stage.nodes.images.dispatch({
        model,
        request: asked,
        accountId: TEST_ACCOUNT,
        signal,
        read: (images) => checkImages(images, asked),
      })
    },
  }
}
