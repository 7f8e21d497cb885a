/** Version that the agent reports of itself: that of the package. */
export const AGENT_VERSION = '0.1.0'
