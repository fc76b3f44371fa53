#pragma once

namespace kiln {

enum class Direction { scatter_heads, gather_heads };

}  // namespace kiln
