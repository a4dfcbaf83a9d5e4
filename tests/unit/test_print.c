/* Printing: what PyTorch 2.11 prints for the same tensors, str(tensor), to the letter. */
#include "fixture.h"

#include "base/memory.h"
#include "tensor/tensor.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct FloatCase {
    const char *name;
    cb_dtype dtype;
    int rank;
    int64_t size[CB_MAX_RANK];
    double value[8];
    const char *text;
} FloatCase;

typedef struct IntCase {
    const char *name;
    cb_dtype dtype;
    int rank;
    int64_t size[CB_MAX_RANK];
    int64_t value[8];
    const char *text;
} IntCase;

/* Element k is start + k * step. */
typedef struct RangeCase {
    const char *name;
    cb_dtype dtype;
    int rank;
    int64_t size[CB_MAX_RANK];
    double start, step;
    const char *text;
} RangeCase;

/* clang-format off */
static const FloatCase float_cases[] = {
    {"scalar", CB_F32, 0, {0}, {1.5},
     "tensor(1.5000)"},
    {"scalar_whole", CB_F32, 0, {0}, {3},
     "tensor(3.)"},
    {"scalar_tiny", CB_F32, 0, {0}, {1e-07},
     "tensor(1.0000e-07)"},
    {"scalar_nan", CB_F64, 0, {0}, {NAN},
     "tensor(nan, dtype=torch.float64)"},
    {"whole", CB_F32, 2, {2, 2}, {1, 2, 3, 4},
     "tensor([[1., 2.],\n"
     "        [3., 4.]])"},
    {"negative", CB_F32, 1, {4}, {-1, 2, -3, 40},
     "tensor([-1.,  2., -3., 40.])"},
    {"fraction", CB_F32, 1, {4}, {0.1, -2.5, 100.25, 3},
     "tensor([ 1.0000e-01, -2.5000e+00,  1.0025e+02,  3.0000e+00])"},
    {"nan_inf", CB_F32, 1, {4}, {NAN, INFINITY, -INFINITY, 1},
     "tensor([nan, inf, -inf, 1.])"},
    {"nan_fraction", CB_F32, 2, {2, 2}, {NAN, INFINITY, -INFINITY, 1.5},
     "tensor([[   nan,    inf],\n"
     "        [  -inf, 1.5000]])"},
    {"only_nan", CB_F32, 1, {3}, {NAN, NAN, 0},
     "tensor([nan, nan, 0.])"},
    {"only_inf", CB_F32, 1, {2}, {INFINITY, -INFINITY},
     "tensor([inf, -inf])"},
    {"neg_zero", CB_F32, 1, {2}, {-0.0, 0.0},
     "tensor([-0., 0.])"},
    {"neg_zero_frac", CB_F32, 1, {2}, {-0.0, 0.5},
     "tensor([-0.0000, 0.5000])"},
    {"neg_zero_whole", CB_F32, 1, {2}, {-0.0, 5.0},
     "tensor([-0., 5.])"},
    {"zeros", CB_F32, 2, {2, 3}, {0, 0, 0, 0, 0, 0},
     "tensor([[0., 0., 0.],\n"
     "        [0., 0., 0.]])"},
    {"sci_small", CB_F32, 1, {2}, {1e-05, 1.0},
     "tensor([1.0000e-05, 1.0000e+00])"},
    {"sci_large", CB_F32, 1, {2}, {1000000000.0, 1.0},
     "tensor([1.0000e+09, 1.0000e+00])"},
    {"sci_ratio", CB_F32, 1, {2}, {0.5, 600.0},
     "tensor([5.0000e-01, 6.0000e+02])"},
    {"not_sci_ratio", CB_F32, 1, {2}, {0.6, 600.0},
     "tensor([  0.6000, 600.0000])"},
    {"whole_1e8", CB_F32, 1, {2}, {100000000.0, 1000000.0},
     "tensor([100000000.,   1000000.])"},
    {"sci_above_1e8", CB_F32, 1, {2}, {200000000.0, 350000000.0},
     "tensor([2.0000e+08, 3.5000e+08])"},
    {"sci_below_1e_4", CB_F32, 1, {2}, {2e-05, 3.5e-05},
     "tensor([2.0000e-05, 3.5000e-05])"},
    {"sci_nan", CB_F32, 1, {5}, {1e-08, NAN, INFINITY, -INFINITY, 0},
     "tensor([1.0000e-08,        nan,        inf,       -inf, 0.0000e+00])"},
    {"sci_neg", CB_F64, 1, {3}, {-1e-08, 20000000000.0, 0},
     "tensor([-1.0000e-08,  2.0000e+10,  0.0000e+00], dtype=torch.float64)"},
    {"sci_huge", CB_F64, 1, {2}, {1e+300, 1e-300},
     "tensor([1.0000e+300, 1.0000e-300], dtype=torch.float64)"},
    {"denormal", CB_F32, 1, {2}, {1e-45, 0},
     "tensor([1.4013e-45, 0.0000e+00])"},
    {"half_even", CB_F64, 1, {4}, {5e-05, 0.5, 0.12345, 2.00005},
     "tensor([5.0000e-05, 5.0000e-01, 1.2345e-01, 2.0000e+00], dtype=torch.float64)"},
    {"f16", CB_F16, 1, {3}, {0.1, 65504, 1},
     "tensor([9.9976e-02, 6.5504e+04, 1.0000e+00], dtype=torch.float16)"},
    {"bf16", CB_BF16, 1, {2}, {0.1, 3.0},
     "tensor([0.1001, 3.0000], dtype=torch.bfloat16)"},
    {"empty", CB_F32, 1, {0}, {0},
     "tensor([])"},
    {"empty_2d", CB_F32, 2, {0, 3}, {0},
     "tensor([], size=(0, 3))"},
    {"empty_f64_3d", CB_F64, 3, {1, 0, 2}, {0},
     "tensor([], size=(1, 0, 2), dtype=torch.float64)"},
};

static const IntCase int_cases[] = {
    {"scalar_int", CB_I64, 0, {0}, {7},
     "tensor(7)"},
    {"scalar_bool", CB_BOOL, 0, {0}, {1},
     "tensor(True)"},
    {"ints", CB_I64, 2, {2, 2}, {1, -20, 300, 4},
     "tensor([[  1, -20],\n"
     "        [300,   4]])"},
    {"i32", CB_I32, 1, {3}, {1, 2, 3},
     "tensor([1, 2, 3], dtype=torch.int32)"},
    {"i64_extreme", CB_I64, 1, {3}, {INT64_MIN, 9223372036854775807, 0},
     "tensor([-9223372036854775808,  9223372036854775807,                    0])"},
    {"i16", CB_I16, 1, {2}, {-32768, 5},
     "tensor([-32768,      5], dtype=torch.int16)"},
    {"i8", CB_I8, 2, {2, 1}, {-128, 127},
     "tensor([[-128],\n"
     "        [ 127]], dtype=torch.int8)"},
    {"u8", CB_U8, 1, {2}, {255, 0},
     "tensor([255,   0], dtype=torch.uint8)"},
    {"bools", CB_BOOL, 2, {2, 2}, {1, 0, 1, 1},
     "tensor([[ True, False],\n"
     "        [ True,  True]])"},
    {"bools_true", CB_BOOL, 1, {2}, {1, 1},
     "tensor([True, True])"},
    {"empty_i64", CB_I64, 1, {0}, {0},
     "tensor([], dtype=torch.int64)"},
    {"empty_bool", CB_BOOL, 2, {2, 0}, {0},
     "tensor([], size=(2, 0), dtype=torch.bool)"},
};

static const RangeCase range_cases[] = {
    {"wrap", CB_F32, 1, {30}, 0, 1,
     "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n"
     "        14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,\n"
     "        28., 29.])"},
    {"wrap_frac", CB_F32, 1, {23}, -3.3, 0.37,
     "tensor([-3.3000, -2.9300, -2.5600, -2.1900, -1.8200, -1.4500, -1.0800, -0.7100,\n"
     "        -0.3400,  0.0300,  0.4000,  0.7700,  1.1400,  1.5100,  1.8800,  2.2500,\n"
     "         2.6200,  2.9900,  3.3600,  3.7300,  4.1000,  4.4700,  4.8400])"},
    {"wrap_2d", CB_I64, 2, {2, 30}, 100, 1,
     "tensor([[100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113,\n"
     "         114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127,\n"
     "         128, 129],\n"
     "        [130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143,\n"
     "         144, 145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157,\n"
     "         158, 159]])"},
    {"wrap_f64", CB_F64, 1, {13}, 0, 0.5,
     "tensor([0.0000, 0.5000, 1.0000, 1.5000, 2.0000, 2.5000, 3.0000, 3.5000, 4.0000,\n"
     "        4.5000, 5.0000, 5.5000, 6.0000], dtype=torch.float64)"},
    {"suffix_newline", CB_F64, 1, {11}, 0, 0.25,
     "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,\n"
     "        2.2500, 2.5000], dtype=torch.float64)"},
    {"suffix_edge", CB_I32, 1, {17}, 10, 1,
     "tensor([10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26],\n"
     "       dtype=torch.int32)"},
    {"suffix_edge2", CB_I32, 1, {18}, 10, 1,
     "tensor([10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27],\n"
     "       dtype=torch.int32)"},
    {"suffix_edge3", CB_I16, 1, {16}, 100, 1,
     "tensor([100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113,\n"
     "        114, 115], dtype=torch.int16)"},
    {"rank3", CB_F32, 3, {2, 2, 3}, 0, 1,
     "tensor([[[ 0.,  1.,  2.],\n"
     "         [ 3.,  4.,  5.]],\n"
     "\n"
     "        [[ 6.,  7.,  8.],\n"
     "         [ 9., 10., 11.]]])"},
    {"rank4", CB_F32, 4, {2, 2, 1, 2}, 0, 0.5,
     "tensor([[[[0.0000, 0.5000]],\n"
     "\n"
     "         [[1.0000, 1.5000]]],\n"
     "\n"
     "\n"
     "        [[[2.0000, 2.5000]],\n"
     "\n"
     "         [[3.0000, 3.5000]]]])"},
    {"rank8", CB_I64, 8, {1, 1, 2, 1, 1, 1, 1, 2}, 0, 1,
     "tensor([[[[[[[[0, 1]]]]],\n"
     "\n"
     "\n"
     "\n"
     "\n"
     "          [[[[[2, 3]]]]]]]])"},
    {"exact_threshold", CB_I64, 1, {1000}, 0, 1,
     "tensor([  0,   1,   2,   3,   4,   5,   6,   7,   8,   9,  10,  11,  12,  13,\n"
     "         14,  15,  16,  17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,\n"
     "         28,  29,  30,  31,  32,  33,  34,  35,  36,  37,  38,  39,  40,  41,\n"
     "         42,  43,  44,  45,  46,  47,  48,  49,  50,  51,  52,  53,  54,  55,\n"
     "         56,  57,  58,  59,  60,  61,  62,  63,  64,  65,  66,  67,  68,  69,\n"
     "         70,  71,  72,  73,  74,  75,  76,  77,  78,  79,  80,  81,  82,  83,\n"
     "         84,  85,  86,  87,  88,  89,  90,  91,  92,  93,  94,  95,  96,  97,\n"
     "         98,  99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111,\n"
     "        112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125,\n"
     "        126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139,\n"
     "        140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150, 151, 152, 153,\n"
     "        154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167,\n"
     "        168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181,\n"
     "        182, 183, 184, 185, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195,\n"
     "        196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209,\n"
     "        210, 211, 212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223,\n"
     "        224, 225, 226, 227, 228, 229, 230, 231, 232, 233, 234, 235, 236, 237,\n"
     "        238, 239, 240, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250, 251,\n"
     "        252, 253, 254, 255, 256, 257, 258, 259, 260, 261, 262, 263, 264, 265,\n"
     "        266, 267, 268, 269, 270, 271, 272, 273, 274, 275, 276, 277, 278, 279,\n"
     "        280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293,\n"
     "        294, 295, 296, 297, 298, 299, 300, 301, 302, 303, 304, 305, 306, 307,\n"
     "        308, 309, 310, 311, 312, 313, 314, 315, 316, 317, 318, 319, 320, 321,\n"
     "        322, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332, 333, 334, 335,\n"
     "        336, 337, 338, 339, 340, 341, 342, 343, 344, 345, 346, 347, 348, 349,\n"
     "        350, 351, 352, 353, 354, 355, 356, 357, 358, 359, 360, 361, 362, 363,\n"
     "        364, 365, 366, 367, 368, 369, 370, 371, 372, 373, 374, 375, 376, 377,\n"
     "        378, 379, 380, 381, 382, 383, 384, 385, 386, 387, 388, 389, 390, 391,\n"
     "        392, 393, 394, 395, 396, 397, 398, 399, 400, 401, 402, 403, 404, 405,\n"
     "        406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 419,\n"
     "        420, 421, 422, 423, 424, 425, 426, 427, 428, 429, 430, 431, 432, 433,\n"
     "        434, 435, 436, 437, 438, 439, 440, 441, 442, 443, 444, 445, 446, 447,\n"
     "        448, 449, 450, 451, 452, 453, 454, 455, 456, 457, 458, 459, 460, 461,\n"
     "        462, 463, 464, 465, 466, 467, 468, 469, 470, 471, 472, 473, 474, 475,\n"
     "        476, 477, 478, 479, 480, 481, 482, 483, 484, 485, 486, 487, 488, 489,\n"
     "        490, 491, 492, 493, 494, 495, 496, 497, 498, 499, 500, 501, 502, 503,\n"
     "        504, 505, 506, 507, 508, 509, 510, 511, 512, 513, 514, 515, 516, 517,\n"
     "        518, 519, 520, 521, 522, 523, 524, 525, 526, 527, 528, 529, 530, 531,\n"
     "        532, 533, 534, 535, 536, 537, 538, 539, 540, 541, 542, 543, 544, 545,\n"
     "        546, 547, 548, 549, 550, 551, 552, 553, 554, 555, 556, 557, 558, 559,\n"
     "        560, 561, 562, 563, 564, 565, 566, 567, 568, 569, 570, 571, 572, 573,\n"
     "        574, 575, 576, 577, 578, 579, 580, 581, 582, 583, 584, 585, 586, 587,\n"
     "        588, 589, 590, 591, 592, 593, 594, 595, 596, 597, 598, 599, 600, 601,\n"
     "        602, 603, 604, 605, 606, 607, 608, 609, 610, 611, 612, 613, 614, 615,\n"
     "        616, 617, 618, 619, 620, 621, 622, 623, 624, 625, 626, 627, 628, 629,\n"
     "        630, 631, 632, 633, 634, 635, 636, 637, 638, 639, 640, 641, 642, 643,\n"
     "        644, 645, 646, 647, 648, 649, 650, 651, 652, 653, 654, 655, 656, 657,\n"
     "        658, 659, 660, 661, 662, 663, 664, 665, 666, 667, 668, 669, 670, 671,\n"
     "        672, 673, 674, 675, 676, 677, 678, 679, 680, 681, 682, 683, 684, 685,\n"
     "        686, 687, 688, 689, 690, 691, 692, 693, 694, 695, 696, 697, 698, 699,\n"
     "        700, 701, 702, 703, 704, 705, 706, 707, 708, 709, 710, 711, 712, 713,\n"
     "        714, 715, 716, 717, 718, 719, 720, 721, 722, 723, 724, 725, 726, 727,\n"
     "        728, 729, 730, 731, 732, 733, 734, 735, 736, 737, 738, 739, 740, 741,\n"
     "        742, 743, 744, 745, 746, 747, 748, 749, 750, 751, 752, 753, 754, 755,\n"
     "        756, 757, 758, 759, 760, 761, 762, 763, 764, 765, 766, 767, 768, 769,\n"
     "        770, 771, 772, 773, 774, 775, 776, 777, 778, 779, 780, 781, 782, 783,\n"
     "        784, 785, 786, 787, 788, 789, 790, 791, 792, 793, 794, 795, 796, 797,\n"
     "        798, 799, 800, 801, 802, 803, 804, 805, 806, 807, 808, 809, 810, 811,\n"
     "        812, 813, 814, 815, 816, 817, 818, 819, 820, 821, 822, 823, 824, 825,\n"
     "        826, 827, 828, 829, 830, 831, 832, 833, 834, 835, 836, 837, 838, 839,\n"
     "        840, 841, 842, 843, 844, 845, 846, 847, 848, 849, 850, 851, 852, 853,\n"
     "        854, 855, 856, 857, 858, 859, 860, 861, 862, 863, 864, 865, 866, 867,\n"
     "        868, 869, 870, 871, 872, 873, 874, 875, 876, 877, 878, 879, 880, 881,\n"
     "        882, 883, 884, 885, 886, 887, 888, 889, 890, 891, 892, 893, 894, 895,\n"
     "        896, 897, 898, 899, 900, 901, 902, 903, 904, 905, 906, 907, 908, 909,\n"
     "        910, 911, 912, 913, 914, 915, 916, 917, 918, 919, 920, 921, 922, 923,\n"
     "        924, 925, 926, 927, 928, 929, 930, 931, 932, 933, 934, 935, 936, 937,\n"
     "        938, 939, 940, 941, 942, 943, 944, 945, 946, 947, 948, 949, 950, 951,\n"
     "        952, 953, 954, 955, 956, 957, 958, 959, 960, 961, 962, 963, 964, 965,\n"
     "        966, 967, 968, 969, 970, 971, 972, 973, 974, 975, 976, 977, 978, 979,\n"
     "        980, 981, 982, 983, 984, 985, 986, 987, 988, 989, 990, 991, 992, 993,\n"
     "        994, 995, 996, 997, 998, 999])"},
    {"summary", CB_I64, 1, {1001}, 0, 1,
     "tensor([   0,    1,    2,  ...,  998,  999, 1000])"},
    {"summary_f32", CB_F32, 1, {2000}, 0, 0.5,
     "tensor([0.0000e+00, 5.0000e-01, 1.0000e+00,  ..., 9.9850e+02, 9.9900e+02,\n"
     "        9.9950e+02])"},
    {"summary_2d", CB_F32, 2, {40, 40}, 0, 1,
     "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 3.7000e+01, 3.8000e+01,\n"
     "         3.9000e+01],\n"
     "        [4.0000e+01, 4.1000e+01, 4.2000e+01,  ..., 7.7000e+01, 7.8000e+01,\n"
     "         7.9000e+01],\n"
     "        [8.0000e+01, 8.1000e+01, 8.2000e+01,  ..., 1.1700e+02, 1.1800e+02,\n"
     "         1.1900e+02],\n"
     "        ...,\n"
     "        [1.4800e+03, 1.4810e+03, 1.4820e+03,  ..., 1.5170e+03, 1.5180e+03,\n"
     "         1.5190e+03],\n"
     "        [1.5200e+03, 1.5210e+03, 1.5220e+03,  ..., 1.5570e+03, 1.5580e+03,\n"
     "         1.5590e+03],\n"
     "        [1.5600e+03, 1.5610e+03, 1.5620e+03,  ..., 1.5970e+03, 1.5980e+03,\n"
     "         1.5990e+03]])"},
    {"summary_narrow", CB_F64, 2, {600, 2}, -5, 1,
     "tensor([[-5.0000e+00, -4.0000e+00],\n"
     "        [-3.0000e+00, -2.0000e+00],\n"
     "        [-1.0000e+00,  0.0000e+00],\n"
     "        ...,\n"
     "        [ 1.1890e+03,  1.1900e+03],\n"
     "        [ 1.1910e+03,  1.1920e+03],\n"
     "        [ 1.1930e+03,  1.1940e+03]], dtype=torch.float64)"},
    {"summary_wide", CB_F32, 2, {2, 700}, 0, 0.25,
     "tensor([[0.0000e+00, 2.5000e-01, 5.0000e-01,  ..., 1.7425e+02, 1.7450e+02,\n"
     "         1.7475e+02],\n"
     "        [1.7500e+02, 1.7525e+02, 1.7550e+02,  ..., 3.4925e+02, 3.4950e+02,\n"
     "         3.4975e+02]])"},
    {"summary_3d", CB_I32, 3, {9, 10, 12}, 0, 1,
     "tensor([[[   0,    1,    2,  ...,    9,   10,   11],\n"
     "         [  12,   13,   14,  ...,   21,   22,   23],\n"
     "         [  24,   25,   26,  ...,   33,   34,   35],\n"
     "         ...,\n"
     "         [  84,   85,   86,  ...,   93,   94,   95],\n"
     "         [  96,   97,   98,  ...,  105,  106,  107],\n"
     "         [ 108,  109,  110,  ...,  117,  118,  119]],\n"
     "\n"
     "        [[ 120,  121,  122,  ...,  129,  130,  131],\n"
     "         [ 132,  133,  134,  ...,  141,  142,  143],\n"
     "         [ 144,  145,  146,  ...,  153,  154,  155],\n"
     "         ...,\n"
     "         [ 204,  205,  206,  ...,  213,  214,  215],\n"
     "         [ 216,  217,  218,  ...,  225,  226,  227],\n"
     "         [ 228,  229,  230,  ...,  237,  238,  239]],\n"
     "\n"
     "        [[ 240,  241,  242,  ...,  249,  250,  251],\n"
     "         [ 252,  253,  254,  ...,  261,  262,  263],\n"
     "         [ 264,  265,  266,  ...,  273,  274,  275],\n"
     "         ...,\n"
     "         [ 324,  325,  326,  ...,  333,  334,  335],\n"
     "         [ 336,  337,  338,  ...,  345,  346,  347],\n"
     "         [ 348,  349,  350,  ...,  357,  358,  359]],\n"
     "\n"
     "        ...,\n"
     "\n"
     "        [[ 720,  721,  722,  ...,  729,  730,  731],\n"
     "         [ 732,  733,  734,  ...,  741,  742,  743],\n"
     "         [ 744,  745,  746,  ...,  753,  754,  755],\n"
     "         ...,\n"
     "         [ 804,  805,  806,  ...,  813,  814,  815],\n"
     "         [ 816,  817,  818,  ...,  825,  826,  827],\n"
     "         [ 828,  829,  830,  ...,  837,  838,  839]],\n"
     "\n"
     "        [[ 840,  841,  842,  ...,  849,  850,  851],\n"
     "         [ 852,  853,  854,  ...,  861,  862,  863],\n"
     "         [ 864,  865,  866,  ...,  873,  874,  875],\n"
     "         ...,\n"
     "         [ 924,  925,  926,  ...,  933,  934,  935],\n"
     "         [ 936,  937,  938,  ...,  945,  946,  947],\n"
     "         [ 948,  949,  950,  ...,  957,  958,  959]],\n"
     "\n"
     "        [[ 960,  961,  962,  ...,  969,  970,  971],\n"
     "         [ 972,  973,  974,  ...,  981,  982,  983],\n"
     "         [ 984,  985,  986,  ...,  993,  994,  995],\n"
     "         ...,\n"
     "         [1044, 1045, 1046,  ..., 1053, 1054, 1055],\n"
     "         [1056, 1057, 1058,  ..., 1065, 1066, 1067],\n"
     "         [1068, 1069, 1070,  ..., 1077, 1078, 1079]]], dtype=torch.int32)"},
    {"summary_sci", CB_F64, 1, {1500}, -10000000.0, 12345.678,
     "tensor([-10000000.0000,  -9987654.3220,  -9975308.6440,  ...,\n"
     "          8481479.9660,   8493825.6440,   8506171.3220], dtype=torch.float64)"},
    {"summary_six", CB_I64, 2, {6, 200}, 0, 1,
     "tensor([[   0,    1,    2,  ...,  197,  198,  199],\n"
     "        [ 200,  201,  202,  ...,  397,  398,  399],\n"
     "        [ 400,  401,  402,  ...,  597,  598,  599],\n"
     "        [ 600,  601,  602,  ...,  797,  798,  799],\n"
     "        [ 800,  801,  802,  ...,  997,  998,  999],\n"
     "        [1000, 1001, 1002,  ..., 1197, 1198, 1199]])"},
    {"summary_seven", CB_I64, 2, {7, 150}, 0, 1,
     "tensor([[   0,    1,    2,  ...,  147,  148,  149],\n"
     "        [ 150,  151,  152,  ...,  297,  298,  299],\n"
     "        [ 300,  301,  302,  ...,  447,  448,  449],\n"
     "        ...,\n"
     "        [ 600,  601,  602,  ...,  747,  748,  749],\n"
     "        [ 750,  751,  752,  ...,  897,  898,  899],\n"
     "        [ 900,  901,  902,  ..., 1047, 1048, 1049]])"},
    {"summary_indent", CB_F64, 8, {1, 1, 1, 1, 1, 1, 1, 1100}, -500000.0, 1001.5,
     "tensor([[[[[[[[-500000.0000, -498998.5000, -497997.0000,  ...,\n"
     "                598645.5000,  599647.0000,  600648.5000]]]]]]]],\n"
     "       dtype=torch.float64)"},
    {"summary_bool", CB_BOOL, 1, {1100}, 0, 1,
     "tensor([False,  True,  True,  ...,  True,  True,  True])"},
    {"summary_extreme", CB_I64, 1, {1200}, -2305843009213693952, 4503599627370496,
     "tensor([-2305843009213693952, -2301339409586323456, -2296835809958952960,\n"
     "         ...,  3084965744748789760,  3089469344376160256,\n"
     "         3093972944003530752])"},
};
/* clang-format on */

#define COUNT(array) (sizeof(array) / sizeof *(array))

static cb_tensor *make(int rank, const int64_t *size, cb_dtype dtype) {
    cb_dim_list sizes = {.count = rank};
    memcpy(sizes.at, size, sizeof(int64_t) * (size_t)rank);
    return cb_empty(sizes, dtype);
}

static void set(cb_tensor *x, int64_t k, Scalar value) {
    char element[8];
    scalar_store(element, cb_dtype_of(x), value);
    cb_tensor *one = cb_from_data(element, cb_dtype_of(x), cb_dims(1));
    cb_assign(cb_slice(cb_reshape(x, cb_dims(-1)), 0, k, k + 1), one);
}

static void expect(const char *name, cb_tensor *x, const char *text) {
    char out[16384];
    size_t length = cb_format(x, out, sizeof out);
    if (strcmp(out, text)) print_error("case %s\n", name);
    assert_string_equal(out, text);
    assert_int_equal(length, strlen(text));
    assert_null(cb_error());
}

static void test_floats(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(float_cases); i++) {
        const FloatCase *c = &float_cases[i];
        cb_tensor *x = make(c->rank, c->size, c->dtype);
        for (int64_t k = 0; k < cb_numel(x); k++) set(x, k, (Scalar){.f = c->value[k]});
        expect(c->name, x, c->text);
    }
}

static void test_ints(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(int_cases); i++) {
        const IntCase *c = &int_cases[i];
        cb_tensor *x = make(c->rank, c->size, c->dtype);
        for (int64_t k = 0; k < cb_numel(x); k++) set(x, k, (Scalar){.i = c->value[k]});
        expect(c->name, x, c->text);
    }
}

static void test_ranges(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(range_cases); i++) {
        const RangeCase *c = &range_cases[i];
        cb_tensor *x = make(c->rank, c->size, c->dtype);
        for (int64_t k = 0; k < cb_numel(x); k++) {
            Scalar value = {.f = c->start + (double)k * c->step};
            if (!dtype_is_float(c->dtype)) value.i = (int64_t)c->start + k * (int64_t)c->step;
            if (c->dtype == CB_BOOL) value.i = value.i != 0;
            set(x, k, value);
        }
        expect(c->name, x, c->text);
    }
}

static void test_views(void **state) {
    (void)state;
    const int32_t values[] = {1, 2, 3, 4, 5, 6};
    cb_tensor *x = cb_from_data(values, CB_I32, cb_dims(2, 3));
    expect("transposed", cb_t(x),
           "tensor([[1, 4],\n        [2, 5],\n        [3, 6]], dtype=torch.int32)");
    expect("row", cb_select(x, 0, 1), "tensor([4, 5, 6], dtype=torch.int32)");
    expect("expanded", cb_expand(cb_narrow(x, 0, 1, 1), cb_dims(2, 3)),
           "tensor([[4, 5, 6],\n        [4, 5, 6]], dtype=torch.int32)");
}

/* Whatever requires a gradient says so, behind all else, and on a line of its own where PyTorch
 * breaks it. */
static void test_gradients(void **state) {
    (void)state;
    cb_tensor *w = cb_requires_grad_(cb_ones(2), true);
    expect("leaf", w, "tensor([1., 1.], requires_grad=True)");
    expect("result", cb_mul(w, 2.0), "tensor([2., 2.], requires_grad=True)");
    expect("detached", cb_detach(w), "tensor([1., 1.])");
    expect("f64", cb_requires_grad_(cb_ones(cb_dims(0, 2), CB_F64), true),
           "tensor([], size=(0, 2), dtype=torch.float64, requires_grad=True)");
    expect("long", cb_requires_grad_(cb_ones(cb_dims(16)), true),
           "tensor([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.],\n"
           "       requires_grad=True)");
    cb_requires_grad_(w, false);
    expect("ended", w, "tensor([1., 1.])");
}

static cb_tensor *prints(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    char text[80];
    cb_format(y, text, sizeof text);
    assert_string_equal(text, "tensor([2., 2.], requires_grad=True)");
    cb_backward(cb_sum(y), NULL);
    return cb_detach(y);
}

static void test_gradients_of_a_call(void **state) {
    (void)state;
    cb_tensor *w = cb_requires_grad_(cb_ones(2), true);
    cb_function *fast = cb_compile(prints, "backend=vm");
    for (int call = 0; call < 3; call++) assert_non_null(cb_call(fast, w));
    cb_function_free(fast);
    expect("gradient", cb_tensor_grad(w), "tensor([6., 6.])");
}

/* As snprintf: the whole length comes back, what fits is written and ended by a NUL. */
static void test_buffer_sizes(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((const float[]){1, 2}, CB_F32, cb_dims(2));
    const char *text = "tensor([1., 2.])";
    assert_int_equal(cb_format(x, NULL, 0), strlen(text));
    for (size_t bytes = 1; bytes < 20; bytes++) {
        char out[24];
        memset(out, '#', sizeof out);
        assert_int_equal(cb_format(x, out, bytes), strlen(text));
        size_t written = bytes - 1 < strlen(text) ? bytes - 1 : strlen(text);
        assert_memory_equal(out, text, written);
        assert_int_equal(out[written], '\0');
        assert_int_equal(out[written + 1], '#');
    }
}

static void test_null(void **state) {
    (void)state;
    char out[8] = "full";
    assert_int_equal(cb_format(NULL, out, sizeof out), 0);
    assert_string_equal(out, "");
    assert_non_null(strstr(cb_error(), "format: x is NULL"));
    cb_clear_error();
}

static void test_stdout(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((const float[]){1, 2}, CB_F32, cb_dims(2));
    char *text = NULL;
    size_t bytes = 0;
    FILE *before = stdout;
    stdout = open_memstream(&text, &bytes);
    cb_print(x);
    fclose(stdout);
    stdout = before;
    assert_string_equal(text, "tensor([1., 2.])\n");
    free(text);
}

static void test_locale(void **state) {
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        skip_because("neither de_DE.UTF-8 nor fr_FR.UTF-8 is installed");
    cb_tensor *x = cb_from_data((const float[]){1.5f, 0.25f}, CB_F32, cb_dims(2));
    expect("fixed", x, "tensor([1.5000, 0.2500])");
    x = cb_from_data((const float[]){1e-8f}, CB_F32, cb_dims(1));
    expect("scientific", x, "tensor([1.0000e-08])");
    setlocale(LC_NUMERIC, "C");
}

static void test_no_memory(void **state) {
    (void)state;
    cb_tensor *x = cb_zeros(cb_dims(900), CB_I64);
    int failures = 0;
    for (bool done = false; !done; failures++) {
        allocations_left = failures;
        cb_set_allocator((cb_allocator){failing_resize, NULL});
        done = cb_format(x, NULL, 0);
        cb_set_allocator((cb_allocator){NULL, NULL});
        assert_int_equal(cb_error_status(), done ? CB_OK : CB_ERR_MEMORY);
        cb_clear_error();
        assert_true(failures < 100);
    }
    assert_true(failures > 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scope, close_scope_without_tensors)
    const struct CMUnitTest tests[] = {
        TEST(test_floats),       TEST(test_ints),
        TEST(test_ranges),       TEST(test_views),
        TEST(test_buffer_sizes), TEST(test_null),
        TEST(test_gradients),    TEST(test_gradients_of_a_call),
        TEST(test_stdout),       TEST(test_locale),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
