/** What a node does (facts of the public client, header Model-Type): chats, or makes images with its one model. */
export const NODE_TYPES = ['LLM', 'DIFFUSION'] as const

export type NodeType = (typeof NODE_TYPES)[number]
