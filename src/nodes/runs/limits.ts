import {
  FRAME_BYTES_MAX,
  IMAGE_FRAME_BYTES_MAX,
  LARGE_FRAME_BYTES_MAX,
} from '../protocol/frames.ts'

/** Unless the name says otherwise, times are milliseconds and sizes are bytes. */
export type NodeLimits = {
  /** A node takes about 15 KB of memory. More nodes are closed with 1013, so that clients wait. */
  readonly connectionsMax: number
  /** More handshakes get 503. */
  readonly handshakesMax: number
  /** The registry must answer within this time. Otherwise the socket is destroyed. */
  readonly handshakeTimeoutMs: number
  /**
   * When a node connects again, its old connection must answer a ping within this time. Otherwise
   * the new connection replaces the old one.
   */
  readonly takeoverMs: number
  /**
   * The node must finish a closing handshake within this time. Otherwise the socket is destroyed.
   */
  readonly closeTimeoutMs: number
  /**
   * Largest frame from a node. A larger frame closes the connection with 1009. A chunk has some
   * hundred bytes, with logprobs some thousand.
   */
  readonly frameBytesMax: number
  /**
   * Largest frame with images from a DIFFUSION node: ten images of 1,024 pixels. The limit is
   * `frameBytesMax` unless the gateway waits for the node's answer.
   */
  readonly imageFrameBytesMax: number
  /** Limits the images of all nodes together. At the limit, calls for images are refused. */
  readonly imageBytesMax: number
  /**
   * Largest frame to a node. The public client accepts 1 MiB. After a larger frame, the client
   * closes with 1009 and loses all its runs.
   */
  readonly requestBytesMax: number
  /**
   * Largest frame to a node that announced `large-frames`: a body of 10 MiB with pictures, plus the
   * bytes that serialising may add.
   */
  readonly largeRequestBytesMax: number
  /**
   * Bytes that may wait for one node, besides one large frame. A call that does not fit waits, or
   * gets another node.
   */
  readonly sendBytesMax: number
  /**
   * A node is lost if bytes wait for it, and none are sent for this long and the time that a slow
   * line takes for them.
   */
  readonly sendStallMs: number
  /** A node whose line is slower is lost when many bytes wait for it. */
  readonly sendBytesPerMsMin: number
  /** Cost that a node may cause at once. An unexpected frame costs 1, plus 1 per KiB. */
  readonly strayBurst: number
  /** Additional cost that is allowed per second. A higher cost closes the connection with 1008. */
  readonly strayPerSecond: number

  /** Runs that one node gets at the same time. */
  readonly slots: number
  /** A node with more vram than `largeVramMb` gets this many runs. */
  readonly slotsLarge: number
  readonly largeVramMb: number

  /** Limit for each node that is tried, if the node does not say that its backend works. */
  readonly firstTokenMs: number
  /** Limit for the first token of a node that says so. Long prompts on slow machines need it. */
  readonly prefillMs: number
  /** Maximum time between two chunks that contain text or end a choice. */
  readonly tokenMs: number
  /** How long a run waits for the usage after the last choice. Some backends never send it. */
  readonly finishGraceMs: number
  /** Limit for the whole run. 4,096 tokens at 5 per second take 14 minutes. */
  readonly runMs: number
  /** How long a run keeps its slot if the node still streams after the run has ended early. */
  readonly drainMs: number
  /** Bytes that wait for a slow caller, per run. */
  readonly queueBytesMax: number
  /**
   * Limit for all frames of one run. A longer answer ends only this run, because the caller chose
   * the answer's length.
   */
  readonly answerBytesMax: number
  /**
   * Maximum number of bytes that a node may send for a run after the cancel frame. The buffers of
   * node and network may contain this much. Sending more closes the connection with 1008.
   */
  readonly lateBytesMax: number
  /**
   * A node that did not announce `cancel` may send `answerBytesMax` after a run, plus this much for
   * each second since the run's end. 128 choices with 20 logprobs each come near this rate.
   */
  readonly lateBytesPerSecond: number
  /**
   * Limit for each node that is tried. A volunteer's machine may need a minute or more for ten
   * large images.
   */
  readonly imageMs: number
  /**
   * Maximum depth of a chunk, which is itself the first level. The code that serialises a chunk
   * again is recursive.
   */
  readonly chunkDepthMax: number

  /** How many other nodes are tried before the first token. */
  readonly retriesMax: number
  /** Callers that wait for one model. */
  readonly waitersMax: number
  readonly waitMs: number

  /** After this many failures in a row, a node is set aside. */
  readonly failuresMax: number
  /** How long a node is set aside at first. Each failed probe doubles this, up to `asideMaxMs`. */
  readonly asideMs: number
  readonly asideMaxMs: number
  /**
   * After this many error answers in a row, a node is probed. Any other answer resets the count.
   * Callers' requests may have caused the errors, so a probe uses the gateway's own request.
   */
  readonly refusalsMax: number

  /**
   * Lowest speed, tokens per second. To connect, a node needs a stored benchmark of this speed. A
   * slower connected node becomes degraded.
   */
  readonly tokensPerSecondMin: number
  /** A probe whose first token takes longer shows that the node is too slow. */
  readonly probeFirstTokenMs: number
  /** A probe whose small image takes longer shows that the node is too slow. */
  readonly probeImageMs: number
  /** Time between two probes of a RUNNING node, if the node served no call in between. */
  readonly probeIntervalMs: number
  /** Time between two probes of a node that is being verified or is degraded. */
  readonly probeRetryMs: number
  readonly probesMax: number

  /**
   * The protocol's ping: its interval, and the time within which the node must answer. After
   * `pingMissesMax` unanswered pings in a row, the connection is closed.
   */
  readonly pingMs: number
  readonly pingTimeoutMs: number
  readonly pingMissesMax: number
  /**
   * A connection that is silent for this long gets a WebSocket ping, which the client's library
   * answers.
   */
  readonly silenceMs: number
  /**
   * Time within which the WebSocket ping must be answered. Otherwise the connection counts as
   * half-open and is destroyed.
   */
  readonly silenceTimeoutMs: number
  readonly healthMs: number
  /**
   * When its connection is this old, an idle node is asked to connect again, so that load balancers
   * can distribute the nodes again.
   */
  readonly reconnectMs: number
  /**
   * How often nodes are stored as connected. If the gateway is killed, a node's uptime ends at the
   * last of these times.
   */
  readonly seenMs: number
  /**
   * Time between searches for nodes of dead gateways. Until a search, these nodes are shown as
   * connected.
   */
  readonly abandonedMs: number
  /** Time between key checks. A revoked key's connections end within this time + KEY_AGE_MAX_MS. */
  readonly keyCheckMs: number
  /** How often the registration of a connected node is read again. */
  readonly recheckMs: number

  /** Deadlines of runs and waiting callers may be late by this much. */
  readonly tickMs: number
  /** How often pings and probes that are due are sent. */
  readonly tendMs: number
  /** Runs that are kept while the database cannot be reached. Older runs are dropped. */
  readonly inferencesMax: number
}

/** The figures for pings and slots are those of the deployed service. */
export const NODE_LIMITS: NodeLimits = {
  connectionsMax: 20_000,
  handshakesMax: 256,
  handshakeTimeoutMs: 10_000,
  takeoverMs: 2_000,
  closeTimeoutMs: 5_000,
  frameBytesMax: FRAME_BYTES_MAX,
  imageFrameBytesMax: IMAGE_FRAME_BYTES_MAX,
  imageBytesMax: 512 * 1024 * 1024,
  requestBytesMax: FRAME_BYTES_MAX,
  largeRequestBytesMax: LARGE_FRAME_BYTES_MAX,
  sendBytesMax: 8 * 1024 * 1024,
  sendStallMs: 120_000,
  // 0.5 Mbit/s.
  sendBytesPerMsMin: 64,
  strayBurst: 2_000,
  strayPerSecond: 200,

  slots: 10,
  slotsLarge: 20,
  largeVramMb: 80_000,

  firstTokenMs: 30_000,
  prefillMs: 10 * 60_000,
  tokenMs: 30_000,
  finishGraceMs: 2_000,
  runMs: 30 * 60_000,
  drainMs: 60_000,
  queueBytesMax: 4 * 1024 * 1024,
  answerBytesMax: 64 * 1024 * 1024,
  lateBytesMax: 16 * 1024 * 1024,
  lateBytesPerSecond: 8 * 1024 * 1024,
  imageMs: 120_000,
  chunkDepthMax: 32,

  retriesMax: 2,
  waitersMax: 256,
  waitMs: 5_000,

  failuresMax: 3,
  asideMs: 10_000,
  asideMaxMs: 300_000,
  refusalsMax: 5,

  tokensPerSecondMin: 1,
  probeFirstTokenMs: 20_000,
  probeImageMs: 60_000,
  probeIntervalMs: 600_000,
  probeRetryMs: 60_000,
  probesMax: 64,

  pingMs: 600_000,
  pingTimeoutMs: 10_000,
  pingMissesMax: 3,
  silenceMs: 30_000,
  silenceTimeoutMs: 20_000,
  healthMs: 600_000,
  reconnectMs: 24 * 60 * 60_000,
  seenMs: 60_000,
  abandonedMs: 2_000,
  keyCheckMs: 400,
  recheckMs: 600_000,

  tickMs: 100,
  tendMs: 1_000,
  inferencesMax: 10_000,
}
